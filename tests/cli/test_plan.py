"""``fedfibos plan``: who can take part, with what, and what binds, within 80 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedfibos.cli import main
from fedfibos.methods import METHODS

FLEET = str(Path(__file__).resolve().parents[2] / "examples" / "fleet.toml")
TINY = ("model.name=lenet", "model.options={channels=[4,8],hidden=16}")
DEVICES = (
    'federation.devices=[{name="a gateway of a long name", share=0.1}, {name="sensor", share=0.9, memory="16.81 MB",'
    'macs_per_second=1e5, seconds=20, bytes="1 MB"}]'
)


def test_every_method_is_there_and_no_line_is_wider_than_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["plan", FLEET, *TINY, DEVICES]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, map(str.rstrip, shown.splitlines()))) <= 80
    for name in METHODS:
        assert f"\n{name}: " in shown
    assert "heterofl: slices of whole channels; 2 of 2 classes, 20 of 20 clients take part" in shown
    assert "fiarse: masks of single weights; 1 of 2 classes, 2 of 20 clients take part" in shown
    assert "sensor is left out: a mask is trained in the shape of the whole model" in shown
    assert "…" not in shown


def test_json_has_the_same_in_numbers(capsys):
    assert main(["plan", FLEET, *TINY, DEVICES, "--json", "method.name=heterofl"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["methods"]) == ["heterofl"]
    assert found["clients"] == {"a gateway of a long name": 2, "sensor": 18}
    assert found["examples_a_round"] == 50
    sensor = found["methods"]["heterofl"]["sensor"]
    assert sensor["bound_by"] == ["memory"]
    assert sensor["memory"] <= 16_810_000
    assert sensor["seconds"] == pytest.approx(3 * 50 * sensor["macs"] / 1e5)


def test_a_method_that_cannot_nest_is_left_out_with_the_reason(capsys):
    assert main(["plan", FLEET, *TINY, DEVICES, "local.nested=0.5"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    blocks = shown.partition("fedbrb: ")[2].partition("fiarse: ")[0]
    assert blocks.startswith("slices of whole channels; 0 of 2 classes")
    assert "sensor is left out: local.nested needs a method whose submodels nest" in blocks
    assert "fiarse: masks of single weights; " in shown


def test_this_machine_is_measured(capsys):
    assert main(["plan", FLEET, *TINY, DEVICES, "--measure", "method.name=fedavg"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "examples a second of the whole model: examples_per_second = " in shown
    assert "or macs_per_second = " in shown
    assert "MB before it trains (interpreter and imports" in shown


def test_an_experiment_without_devices_is_told_what_to_write(capsys):
    assert main(["plan", FLEET, "federation.devices=[]"]) == 2
    assert "a plan is of classes of devices, [[federation.devices]], the experiment has none" in capsys.readouterr().err


def test_costs_of_an_experiment_with_devices_name_the_command_that_knows_them(capsys):
    assert main(["methods", FLEET, *TINY, "method.name=heterofl"]) == 0
    assert "; what its devices hold says fedfibos plan" in " ".join(capsys.readouterr().out.split())
    assert main(["methods", FLEET, *TINY, "method.name=heterofl", "federation.devices=[]"]) == 0
    assert "fedfibos plan" not in capsys.readouterr().out


def test_a_sweep_shows_the_devices(tmp_path, capsys):
    study = tmp_path / "study.toml"
    study.write_text(f'base = "{FLEET}"\nseeds = [0]\n[grid.method.one]\nmethod.name = "fiarse"\n')
    assert main(["sweep", str(study), "--dry-run"]) == 0
    assert "devices: 10 % gateway, 30 % phone, 40 % watch, 20 % sensor\n" in capsys.readouterr().out
