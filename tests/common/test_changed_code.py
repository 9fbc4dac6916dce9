"""A run keeps the user's code, and says where it has changed since."""

import hashlib
import json
import sys

import pytest
from own_code import MINE, OWN, own_experiment

from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment, to_toml


@pytest.mark.slow_where("hidden")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("plain", ""),
        ("anything", "width = 3"),
        ("several", ""),
        ("several", "hidden = [3]"),
    ],
)
def test_the_record_of_any_model_is_loaded_as_it_was_without_its_code(mine, monkeypatch, model, options):
    (mine / "mine.toml").write_text(own_experiment(model, options))
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    experiment = load_experiment("mine.toml")
    assert ("hidden = [\n" in to_toml(experiment)) == (model == "several")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(mine)])
    sys.modules.pop("mine_of_the_test")
    (mine / "mine_of_the_test.py").unlink()
    assert to_toml(load_experiment("run")) == to_toml(experiment)
    if options == "hidden = [3]":
        assert main(["report", "run", "--out", "page.html"]) == 0


def test_changed_code_is_warned_of_and_another_size_is_refused(mine, capsys):
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    (mine / "mine_of_the_test.py").write_text(MINE + "\n# a word\n")
    longer = ["run", "mine.toml", "--out", "run", "--workers", "1", "--resume", "federation.rounds=3"]
    assert main(longer) == 0
    assert "the file of mine_of_the_test:net has changed since run was last run" in capsys.readouterr().out
    (mine / "mine_of_the_test.py").write_text(MINE.replace("num_classes)", "num_classes, bias=False)"))
    sys.modules.pop("mine_of_the_test")
    before = (mine / "run" / "rounds.jsonl").read_bytes()
    assert main([*longer[:-1], "federation.rounds=4"]) == 2
    assert "is of a model of 43 parameters, got one of 40" in capsys.readouterr().err
    assert (mine / "run" / "rounds.jsonl").read_bytes() == before


@pytest.mark.parametrize("command", [["evaluate"], ["export", "--capacity", "0.5", "--out", "a.safetensors"]])
def test_changed_code_is_said_wherever_a_run_is_opened(bare, capsys, command):
    assert main([*OWN, "model.name=mine_of_the_test:plain"]) == 0
    with (bare / "mine_of_the_test.py").open("a") as file:
        file.write("# another\n")
    capsys.readouterr()
    assert main([command[0], "run", *command[1:]]) == 0
    assert "the file of mine_of_the_test:plain has changed since run was last run" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["", "inside/"])
def test_a_run_keeps_the_code_that_looking_at_it_takes(mine, tmp_path_factory, monkeypatch, capsys, package):
    """Also where the module lies in a package, and after the file itself has gone."""
    if package:
        (mine / "inside").mkdir()
        (mine / "mine_of_the_test.py").rename(mine / "inside" / "mine_of_the_test.py")
        text = (mine / "mine.toml").read_text().replace("mine_of_the_test:", "inside.mine_of_the_test:")
        (mine / "mine.toml").write_text(text)
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    assert (mine / "run" / "code" / f"{package}mine_of_the_test.py").read_text() == MINE
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (mine / "run").rename(elsewhere / "run")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(mine)])
    monkeypatch.chdir(elsewhere)
    for module in ("mine_of_the_test", "inside", "inside.mine_of_the_test"):
        sys.modules.pop(module, None)
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 0
    assert main(["export", "run", "--capacity", "0.5", "--out", "a.safetensors"]) == 0
    assert main(["run", "run", "--out", "again", "--workers", "1"]) == 0
    assert "warning" not in capsys.readouterr().err
    first, again = (json.loads((elsewhere / name / "final.json").read_text()) for name in ("run", "again"))
    assert first["params_sha256"] == again["params_sha256"]


def test_a_sweep_does_not_count_runs_of_other_code(mine, capsys):
    """A seed of yesterday's version is no seed of today's, finished or not."""
    (mine / "study.toml").write_text('base = "mine.toml"\nseeds = [0, 1]\n')
    sweep = ["sweep", "study.toml", "--out", "runs", "--workers", "1"]
    assert main([*sweep, "--only", "seed=0"]) == 0
    assert main([*sweep, "--only", "seed=0"]) == 0
    (mine / "mine_of_the_test.py").write_text(MINE + "\n# another\n")
    capsys.readouterr()
    assert main(sweep) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert "seed-0: failed: runs/seed-0 is finished, by another version of mine_of_the_test:" in out
    assert (mine / "runs" / "seed-1" / "final.json").exists()


@pytest.mark.slow
def test_runs_of_different_code_are_not_averaged(mine, capsys):
    assert main(["run", "mine.toml", "--out", "runs/0", "--workers", "1"]) == 0
    (mine / "mine_of_the_test.py").write_text(MINE + "\n# another\n")
    assert main(["run", "mine.toml", "seed=1", "--out", "runs/1", "--workers", "1"]) == 0
    assert main(["report", "runs", "--out", "page.html"]) == 0
    assert "2 results on 2 problems" in capsys.readouterr().out
    assert hashlib.sha256(MINE.encode()).hexdigest()[:8] in (mine / "page.html").read_text()
