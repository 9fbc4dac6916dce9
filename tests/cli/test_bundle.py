"""``fedfibos bundle``: a file a device class that is what its manifest says, of the round that was asked for."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
import torch
from safetensors.torch import load_file

from fedfibos.cli import main
from fedfibos.simulation.reopen import reopen


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("bundle") / "run"
    overrides = ["federation.rounds=4", "evaluation.every=2", "run.checkpoint_every=2", "checkpoint.best=loss"]
    more = ["model.options.hidden=[16]", "method.name=heterofl", "federation.capacities={1.0=0.5, 0.5=0.5}"]
    assert main(["run", "experiments/digits/fedavg.toml", *overrides, *more, "--out", str(out), "--workers", "1"]) == 0
    return out


@pytest.mark.parametrize("suffix", [".safetensors", ".pt2"])
def test_every_class_has_a_file_and_the_manifest_says_what_it_is_of(run, tmp_path, suffix, capsys):
    assert main(["bundle", str(run), "--out", str(tmp_path / "out"), "--format", suffix]) == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    opened = reopen(run)
    last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])["evaluation"]
    assert manifest["run"] == "run"
    assert manifest["round"] == 4
    assert manifest["params_sha256"] == opened.checkpoint.params.sha256()
    assert manifest["commit"] == json.loads((run / "environment.json").read_text())["commit"]
    assert manifest["classes"] == [str(n) for n in range(10)]
    assert manifest["inputs"].startswith("(pixels / 16 - mean) / std")
    assert manifest["method"] == "heterofl"
    assert [device["capacity"] for device in manifest["devices"]] == [1.0, 0.5]
    for device in manifest["devices"]:
        content = (tmp_path / "out" / device["file"]).read_bytes()
        assert device["sha256"] == hashlib.sha256(content).hexdigest()
        assert device["bytes"] == len(content)
        assert device["metrics"]["global"] == last["global"]["submodels"][str(device["capacity"])]
        assert device["metrics"]["local"] == last["local"]["by_capacity"][str(device["capacity"])]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["manifest.json", f"capacity-1{suffix}", f"capacity-0.5{suffix}"]
    )
    small, large = (device["parameters"] for device in reversed(manifest["devices"]))
    assert small < large == opened.world.model.layout.size
    if suffix == ".safetensors":
        whole = torch.cat([t.flatten() for t in load_file(tmp_path / "out/capacity-1.safetensors").values()])
        assert torch.equal(whole.sort().values, opened.checkpoint.params.flat.sort().values)


def test_an_earlier_round_that_is_kept_and_the_best(run, tmp_path, capsys):
    assert main(["bundle", str(run), "--out", str(tmp_path / "two"), "--format", ".safetensors", "--round", "2"]) == 0
    manifest = json.loads((tmp_path / "two/manifest.json").read_text())
    assert manifest["round"] == 2
    assert manifest["params_sha256"] == reopen(run, at=2).checkpoint.params.sha256()
    assert main(["bundle", str(run), "--out", str(tmp_path / "best"), "--format", ".safetensors", "--best"]) == 0
    best = json.loads((tmp_path / "best/manifest.json").read_text())
    assert best["round"] == reopen(run, at="best").checkpoint.round
    export = ["--capacity", "0.5", "--out", str(tmp_path / "one.safetensors"), "--round", "2"]
    assert main(["export", str(run), *export]) == 0
    one, other = load_file(tmp_path / "one.safetensors"), load_file(tmp_path / "two/capacity-0.5.safetensors")
    assert all(torch.equal(one[name], other[name]) for name in one)
    capsys.readouterr()
    assert main(["evaluate", str(run), "--round", "2"]) == 0
    title, *_ = capsys.readouterr().out.splitlines()
    assert re.search(r"after round 2: accuracy$", title.rstrip())
    assert json.loads((run / "evaluation.json").read_text())["round"] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--round", "3"], "keeps no checkpoint after round 3, it has those after round 2 and 4"),
        (["--round", "2", "--best"], "pass --best or --round, not both"),
        (
            ["--format", ".zip"],
            "--format must be one of .sparse.safetensors, .safetensors, .pt2, .onnx, .pte, got '.zip'",
        ),
        (["--capacity", "2"], "capacity must be in (0, 1], got 2"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(run, tmp_path, arguments, said, capsys):
    assert main(["bundle", str(run), "--out", str(tmp_path / "out"), *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_stays_as_it_is(run, tmp_path, capsys):
    (tmp_path / "mine").write_text("mine")
    assert main(["bundle", str(run), "--out", str(tmp_path)]) == 2
    assert "must be a new or an empty folder: choose another --out" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "mine"


def test_personal_submodels_have_no_class_in_common(tmp_path, capsys):
    out = str(tmp_path / "run")
    overrides = ["federation.rounds=1", "method.sharing=client"]
    assert main(["run", "experiments/digits/fedfibos.toml", *overrides, "--out", out, "--workers", "1"]) == 0
    assert main(["bundle", out, "--out", str(tmp_path / "b")]) == 2
    assert "a class has none in common: fedfibos export --client N writes one" in capsys.readouterr().err
