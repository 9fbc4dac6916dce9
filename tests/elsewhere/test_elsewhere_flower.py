"""Devices of a fleet that train on another device than their processor: to the same numbers."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedfibos.data import load
from fedfibos.flower.measure import Limits, affordable_capacity, round_bytes
from fedfibos.methods import METHODS
from fedfibos.types import Client
from flower.local_grid import Deployment, experiment_of, lines_of

pytestmark = pytest.mark.slow

ROUNDING = 2e-6
SETTINGS = [*(f"method={{name='{name}'}}" for name in METHODS), "method.preset='algorithm1'"]


def deployment(folder: Path, where: str, *overrides: str, **federation: str) -> Deployment:
    folder.mkdir()
    fleet = Deployment(experiment_of(folder, "model.norm='batch'", *overrides), folder / "state", **federation)
    for node in fleet.nodes.values():
        node.config["device"] = where
    return fleet


@pytest.mark.parametrize(("settings", "scores"), [*((s, "server") for s in SETTINGS), (SETTINGS[-1], "client")])
def test_a_fleet_trains_the_same_elsewhere(settings, scores, tmp_path):
    ends, accuracies = [], []
    for device in ("cpu", "elsewhere"):
        fleet = deployment(tmp_path / device, device, settings, scores=scores, device=device)
        run = tmp_path / device / "run"
        fleet.run(run, load("digits"))
        assert all(not line["rejected"] and len(line["participants"]) == 4 for line in lines_of(run))
        ends.append(load_file(run / "checkpoint" / "round-000003" / "params.safetensors")["flat"])
        accuracies.append(lines_of(run)[-1]["evaluation"]["global"]["full"])
    assert torch.allclose(*ends, rtol=0, atol=ROUNDING)
    assert not torch.equal(*ends)  # it was another device
    assert accuracies[0] == pytest.approx(accuracies[1], abs=2 / 360)


@pytest.mark.parametrize("name", ["heterofl", "fedfibos"])
def test_limits_are_measured_elsewhere(name, tmp_path):
    fleet = deployment(tmp_path / "fleet", "elsewhere", f"method={{name='{name}'}}")
    task, examples = fleet.task, load("digits").test
    there = task.on(torch.device("elsewhere"))
    client = Client(0, 0.5, 0, 0, replace(task.local, steps=1, epochs=None), examples)
    params = task.model.initial_params()
    submodel = task.method.extract(task.model, task.method.init(params), params, client)
    limit = round_bytes(task, client, submodel)
    assert round_bytes(there, client, submodel) == limit
    everything = Limits(memory=1e9, seconds=60.0, traffic=limit)
    assert affordable_capacity(there, examples, everything) == affordable_capacity(task, examples, everything) == 0.5
