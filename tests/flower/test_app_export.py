"""The submodel of a fleet's run as a file."""

from __future__ import annotations

import importlib
import sys
import tomllib

import torch
from local_grid import LocalGrid, Node, run_template, server_context, template_app, template_config
from safetensors.torch import load_file

from fedfibos.cli import main
from fedfibos.flower.new import TEMPLATE
from fedfibos.simulation import CheckpointStore
from fedfibos.types import Client

NODES = [{"client-id": n, "capacity": capacity} for n, capacity in enumerate((1.0, 0.25, 0.0625))]


def test_the_submodel_of_a_run_is_exported(tmp_path, capsys):
    """The command of docs/how-to/export.md."""
    run_template(tmp_path / "run", NODES, **{"federation.rounds": 1})
    out = tmp_path / "small.safetensors"
    command = ["export", str(tmp_path / "run"), "--capacity", "0.25", "--out", str(out)]
    assert main([*command, "--app", str(TEMPLATE / "fleet.py")]) == 0
    shown, err = capsys.readouterr()
    assert "outputs agree to 0" in shown
    assert err == ""
    half = ["export", str(tmp_path / "run"), "--capacity=0.5", f"--out={tmp_path / 'half.safetensors'}"]
    assert main([*half, "--app", str(TEMPLATE / "fleet.py")]) == 0
    assert "warning: no client on record has capacity 0.5: there are 1, 0.25, 0.0625\n" in capsys.readouterr().err
    task = template_app().task(template_config())
    now = CheckpointStore(tmp_path / "run").load_latest(task.model.layout, print)
    device = Client(id=0, capacity=0.25, round=now.round, seed=task.seed, local=task.local)
    held = task.method.extract(task.model, now.state, now.params, device).gather(now.params.flat)
    written = load_file(out)
    for name, tensor in zip(task.model.layout.names, task.model.layout.views(held), strict=True):
        assert torch.equal(written[name], tensor)


def test_a_model_with_batch_normalisation_is_exported_with_statistics_of_the_apps_calibration_set(tmp_path, capsys):
    run_template(tmp_path / "run", NODES, **{"federation.rounds": 1, "method.name": "heterofl"})
    template = (TEMPLATE / "fleet.py").read_text()
    normalised = template.replace("seed=0)", 'norm="batch", seed=0)')
    assert normalised != template
    (tmp_path / "without.py").write_text(normalised)
    (tmp_path / "with.py").write_text(normalised + '\n\ndef calibration(config):\n    return load("digits").train\n')
    out = tmp_path / "small.safetensors"
    command = ["export", str(tmp_path / "run"), "--capacity", "0.25", "--out", str(out), "--app"]
    assert main([*command, str(tmp_path / "without.py")]) == 2
    assert "must have calibration(config), as its model has batch normalisation" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "with.py")]) == 0
    statistics = load_file(out)["features.1.running_mean"]
    assert statistics.abs().max() > 0.01  # not the initial zeros


APP = """
from __future__ import annotations

from dataclasses import dataclass

import torch

from fedfibos.data import load
from fedfibos.flower import client_app, server_app, task_of
from fedfibos.types import Dataset


@dataclass
class Sizes:
    hidden: int


def task(config):
    from of_the_app import net

    return task_of(net(Sizes(int(config["hidden"])).hidden), config, example=torch.zeros(2, 1, 8, 8))


def data(context):
    return load("digits").train.subset(torch.arange(100))


server = server_app(task)
client = client_app(task, data)
"""


def test_an_app_with_settings_and_modules_of_its_own_is_exported(tmp_path, monkeypatch, capsys):
    """A data class, a module beside the app that is imported when it is called, and a key of the app's own."""
    (tmp_path / "an_app.py").write_text(APP)
    (tmp_path / "of_the_app.py").write_text(
        "from torch import nn\n\n\ndef net(hidden):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, 10))\n"
    )
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        app = importlib.import_module("an_app")
        config = template_config(**{"run-dir": str(tmp_path / "run"), "federation.rounds": 1, "federation.wait": 0.01})
        config["hidden"] = 7
        grid = LocalGrid({100 + n: Node(node, app.client) for n, node in enumerate(NODES)}, config)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            app.server(grid, server_context(config))
    for name in ("an_app", "of_the_app"):
        sys.modules.pop(name)
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["app"] == {"hidden": 7}
    out = tmp_path / "small.safetensors"
    command = ["export", str(tmp_path / "run"), "--capacity", "0.25", "--out", str(out)]
    assert main([*command, "--app", str(tmp_path / "an_app.py")]) == 0
    assert load_file(out)["1.weight"].shape == (7, 64)
    assert str(tmp_path) not in sys.path
    for name in ("an_app", "of_the_app"):
        sys.modules.pop(name)


def test_an_app_without_a_task_or_client_held_scores_cannot_be_exported(tmp_path, capsys):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "broken.py").write_text("import not_there")
    (tmp_path / "config.toml").write_text("seed = 0")
    command = ["export", str(tmp_path), "--capacity", "0.25", "--out", str(tmp_path / "a.onnx"), "--app"]
    assert main([*command, str(tmp_path / "empty.py")]) == 2
    assert "must have a function task(config)" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "none.py")]) == 2
    assert "--app must be the Python file of a Flower app" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "broken.py")]) == 2
    assert "broken.py fails with ModuleNotFoundError: No module named 'not_there'" in capsys.readouterr().err
    nodes = [{**node, "state-dir": str(tmp_path / "scores")} for node in NODES]
    held = {"method.sharing": "client", "federation.scores": "client", "federation.rounds": 1}
    run_template(tmp_path / "run", nodes, **held)
    assert main(["export", str(tmp_path / "run"), *command[2:], str(TEMPLATE / "fleet.py")]) == 2
    assert "the scores of this run are with its clients" in capsys.readouterr().err
