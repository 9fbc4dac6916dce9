"""A user's own method is a method like any other."""

import hashlib
import json
import sys
from pathlib import Path

import pytest
from own_code import AUTOENCODER, MINE
from torch import nn

from fedfibos.cli import main
from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment
from fedfibos.simulation import build_world
from fedfibos.submodel import budget

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_a_method_of_ones_own_is_a_method_like_any_other(mine, monkeypatch, capsys):
    run = ["run", "mine.toml", "method.name=mine_of_the_test:Half", "method.part=0.25"]
    assert main([*run, "--out", "runs/own", "--workers", "2"]) == 0
    assert main(["run", "mine.toml", "method.name=fiarse", "--out", "runs/fiarse", "--workers", "1"]) == 0
    config = (mine / "runs" / "own" / "config.toml").read_text()
    assert 'name = "mine_of_the_test:Half"\npart = 0.25' in config
    environment = json.loads((mine / "runs" / "own" / "environment.json").read_text())
    assert environment["own"]["mine_of_the_test:Half"] == hashlib.sha256(MINE.encode()).hexdigest()
    rounds = (mine / "runs" / "own" / "rounds.jsonl").read_text().splitlines()
    d = 4 * 5 + 5 + 5 * 3 + 3
    sent = {1.0: budget(0.25, d), 0.5: budget(0.125, d)}
    assert json.loads(rounds[0])["bytes"]["up"] in {4 * (sent[a] + sent[b]) for a in sent for b in sent}
    assert main(["methods", "mine.toml", *run[2:]]) == 0
    assert main(["export", "runs/own", "--capacity", "0.5", "--out", "half.safetensors"]) == 0
    sys.modules.pop("mine_of_the_test")
    (mine / "mine_of_the_test.py").unlink()  # a report needs records alone
    capsys.readouterr()
    assert main(["report", "runs", "--out", "page.html"]) == 0
    assert "2 results on 1 problem" in capsys.readouterr().out  # compared with ours
    assert "Half, part = 0.25" in (mine / "page.html").read_text()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.name=mine_of_the_test:Hlf", r"must have a function Hlf, it has none; did you mean 'Half'"),
        (
            "method.name=mine_of_the_test:net",
            r"must be a dataclass with the verbs of a method, it lacks personal, init",
        ),
        ("method.name=mine_of_the_test:Unfinished", "it lacks init, extract, train, update, aggregate"),
        (
            "method.name=mine_of_the_test:Unwritable",
            "mine_of_the_test:Unwritable has settings that no file can hold: TypeError",
        ),
    ],
)
def test_one_line_errors_of_a_method(mine, monkeypatch, override, message):
    monkeypatch.syspath_prepend(mine)
    with pytest.raises(ExperimentError, match=message) as error:
        load_experiment("mine.toml", [override])
    assert "\n" not in str(error.value)


def test_settings_of_a_method_of_ones_own_are_checked(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    own = "method.name=mine_of_the_test:Half"
    for setting, message in (
        ("method.part=all", r"method\.part must be a number, got 'all'"),
        ("method.prat=0.1", "a setting of mine_of_the_test:Half must be 'part', got 'prat'; did you mean 'part'"),
        ("method.preset=best", "a method of your own has no presets, got 'best'"),
    ):
        with pytest.raises(ExperimentError, match=message):
            load_experiment("mine.toml", [own, setting])


def test_the_example_of_a_method_is_one(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(EXAMPLES.parent)
    example = ["run", str(EXAMPLES / "own_method.toml"), "federation.rounds=2"]
    assert main([*example, "--out", str(tmp_path / "run"), "--workers", "1"]) == 0
    assert "examples.own_method:Movement on digits" in capsys.readouterr().out


def test_the_example_in_the_examples_folder(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES.parent)
    world = build_world(load_experiment(EXAMPLES / "own_code.toml"), device="cpu", data_dir=None, warn=print)
    assert isinstance(world.model.module, nn.Module)
    assert world.split.classes == ("malignant", "benign")
    assert world.model.layout.size == 2 * (30 * 32 + 32) + 32 * 2 + 2


def test_a_setting_may_not_be_named_as_a_verb(mine, capsys):
    (mine / "encoder_of_the_test.py").write_text(AUTOENCODER)
    assert main(["run", "mine.toml", "method.name=encoder_of_the_test:Scored", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "encoder_of_the_test:Scored has a setting 'importance', which methods are asked for as a verb" in said
