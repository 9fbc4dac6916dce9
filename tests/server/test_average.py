"""The average over rounds: its rule by hand, that training does not depend on it, and that it is what is served."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from local_grid import Deployment, lines_of
from safetensors.torch import load_file
from torch import nn

from fedfibos.cli.app import main
from fedfibos.config.experiment import load_experiment
from fedfibos.methods import FIARSE, FedAvg
from fedfibos.model import model_of
from fedfibos.round import merge
from fedfibos.server.average import served
from fedfibos.server.settings import Server
from fedfibos.simulation import Interrupted, simulate
from fedfibos.simulation.reopen import reopen
from fedfibos.simulation.world import load_split
from fedfibos.submodel import Mask
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State, Upload

MODEL = model_of(nn.Linear(2, 1, bias=False))
START = replace(MODEL.initial_params(), flat=torch.zeros(2))
CLIENT = Client(0, 1.0, 0, 0, LocalTraining())


def upload(move: float) -> Upload:
    return Upload(Mask(None, 2), torch.tensor([-move, move]), 0.0, 1)


def after(server: Server, moves: list[float]) -> list[tuple[State, list[float], list[float]]]:
    """State, parameters and what is served, after each of some rounds."""
    state, params, seen = State(), START, []
    for move in moves:
        outcome = [(CLIENT, upload(move))]
        state, params, _ = merge(FedAvg(), state, params, [CLIENT], outcome, server)
        seen.append((state, params.flat.tolist(), served(state, params).flat.tolist()))
    return seen


def test_the_mean_of_all_rounds_then_a_moving_average():
    """x = 1, 3, 5, 7, 9 at a rate of 3/4: means of up to four rounds, then 4 + (9 − 4)/4."""
    seen = after(Server(average=0.75), [1.0, 2.0, 2.0, 2.0, 2.0])
    assert [params[0] for _, params, _ in seen] == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert [average for _, _, average in seen] == [[x, -x] for x in (1.0, 2.0, 3.0, 4.0, 5.25)]


def test_training_does_not_depend_on_it():
    plain, with_average = (after(Server(optimizer="momentum", average=rate), [1.0, -2.0, 4.0]) for rate in (0.0, 0.9))
    assert [params for _, params, _ in plain] == [params for _, params, _ in with_average]
    assert [params for _, params, _ in plain] == [average for _, _, average in plain]


def test_a_round_changes_none_of_what_it_was_given():
    [(state, _, _)] = after(Server(average=0.5), [1.0])
    before = {name: tensor.clone() for name, tensor in state.tensors.items()}
    merge(FedAvg(), state, START, [CLIENT], [(CLIENT, upload(3.0))], Server(average=0.5))
    assert before.keys() == state.tensors.keys()
    assert all(torch.equal(before[name], state.tensors[name]) for name in before)


def test_a_method_does_not_see_it():
    class Looking(FIARSE):
        def update(self, state, client, upload):
            assert not state.tensors
            return super().update(state, client, upload)

    state = State()
    for _ in range(2):
        state, _, _ = merge(Looking(), state, START, [CLIENT], [(CLIENT, upload(1.0))], Server(average=0.5))
    assert set(state.tensors) == {"server.average", "server.averaged"}


@pytest.mark.parametrize("rate", [1.0, -0.1])
def test_a_rate_is_below_1(rate):
    with pytest.raises(ValueError, match=rf"average must be a number in \[0, 1\), got {rate}"):
        Server(average=rate)


ROUNDS = """
method.name = "heterofl"
federation = { clients = 6, cohort = 3, rounds = 4 }
local.steps = 3
evaluation.every = 2
run.checkpoint_every = 2
"""


@pytest.fixture
def toml(experiment_file):
    return experiment_file(ROUNDS)


def evaluations(run):
    lines = (json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines())
    return [line["evaluation"] for line in lines if "evaluation" in line]


def test_a_run_evaluates_and_exports_the_average(toml, tmp_path):
    plain = simulate(load_experiment(toml), tmp_path / "plain", workers=1)
    final = simulate(load_experiment(toml, ("server.average=0.5",)), tmp_path / "run", workers=1)
    assert final["params_sha256"] == plain["params_sha256"]
    assert evaluations(tmp_path / "run") != evaluations(tmp_path / "plain")
    at = reopen(tmp_path / "run").checkpoint
    assert not torch.equal(at.served.flat, at.params.flat)
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    again = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert again["global"] == evaluations(tmp_path / "run")[-1]["global"]
    out = tmp_path / "whole.safetensors"
    assert main(["export", str(tmp_path / "run"), "--capacity", "1", "--out", str(out)]) == 0
    tensors = load_file(out)
    assert all(torch.equal(tensors[name], value) for name, value in at.served.tensors().items())


def test_an_interruption_and_flower_do_not_matter(toml, tmp_path):
    experiment = load_experiment(toml, ("server.average=0.5",))
    simulate(experiment, tmp_path / "whole", workers=1)
    Deployment(experiment).run(tmp_path / "deployed", on=load_split(experiment, None, print))
    assert [line["evaluation"]["global"] for line in lines_of(tmp_path / "deployed") if "evaluation" in line] == [
        evaluation["global"] for evaluation in evaluations(tmp_path / "whole")
    ]

    with pytest.raises(Interrupted):
        simulate(experiment, tmp_path / "stopped", workers=1, on_round=lambda record: "stop" * (record["round"] == 3))
    simulate(experiment, tmp_path / "stopped", workers=1, resume=True)
    assert evaluations(tmp_path / "stopped") == evaluations(tmp_path / "whole")
