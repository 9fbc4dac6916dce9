"""The server's optimisers: the papers' formulas on two rounds by hand, and what they do where nobody holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos.methods import FedAvg
from fedfibos.model import model_of
from fedfibos.round import merge
from fedfibos.server.settings import Server
from fedfibos.submodel import Mask
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State, Upload

MODEL = model_of(nn.Linear(2, 1, bias=False))
START = replace(MODEL.initial_params(), flat=torch.zeros(2))
TAU, B1, B2 = 0.1, 0.5, 0.75


def client(n: int, t: int) -> Client:
    return Client(n, 1.0, t, 0, LocalTraining())


def upload(delta: list[float], held: list[bool] | None = None) -> Upload:
    mask = Mask(None, 2) if held is None else Mask(torch.tensor(held), sum(held))
    return Upload(mask, torch.tensor(delta), 0.0, 1)


def rounds(server: Server, uploads: list[list[Upload]], lr: float = 1.0) -> tuple[State, list[list[float]]]:
    """The state after some rounds, and the parameters after each."""
    method, state, params, seen = FedAvg(server_lr=lr, average="holders"), State(), START, []
    for t, cohort in enumerate(uploads):
        clients = [client(n, t) for n in range(len(cohort))]
        state, params, _ = merge(method, state, params, clients, zip(clients, cohort, strict=True), server)
        seen.append(params.flat.tolist())
    return state, seen


def test_sgd_is_the_update_itself():
    _, seen = rounds(Server(), [[upload([1.0, -2.0])], [upload([1.0, 0.0])]], lr=0.5)
    assert seen == [[-0.5, 1.0], [-1.0, 1.0]]


def test_momentum_is_fedavgm():
    """Hsu et al. 2019: v = 0.5·v + Δ, x = x − v. Δ = 1 twice: v = 1, 1.5."""
    state, seen = rounds(Server(optimizer="momentum", momentum=0.5), [[upload([1.0, -2.0])]] * 2)
    assert seen == [[-1.0, 2.0], [-2.5, 5.0]]
    assert state.tensors["server.momentum"].tolist() == [1.5, -3.0]


def expected(kind: str, deltas: tuple[float, ...], lr: float) -> list[float]:
    """Algorithm 2 of Reddi et al. 2021, on one number."""
    m, v, x, seen = 0.0, TAU**2, 0.0, []
    for delta in deltas:
        m = B1 * m + (1 - B1) * delta
        square = delta * delta
        if kind == "adagrad":
            v = v + square
        elif kind == "adam":
            v = B2 * v + (1 - B2) * square
        else:
            v = v - (1 - B2) * square * math.copysign(1.0, v - square)
        x -= lr * m / (math.sqrt(v) + TAU)
        seen.append(x)
    return seen


@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
def test_the_adaptive_ones_are_the_papers(kind):
    server = Server(optimizer=kind, betas=(B1, B2), tau=TAU)
    _, seen = rounds(server, [[upload([1.0, -2.0])], [upload([0.25, 0.5])], [upload([-1.0, 0.0])]], lr=0.1)
    for place, deltas in enumerate(((1.0, 0.25, -1.0), (-2.0, 0.5, 0.0))):
        assert [x[place] for x in seen] == pytest.approx(expected(kind, deltas, 0.1), rel=1e-5)


def test_adam_of_one_round_in_numbers():
    """m = 0.5, v = 0.75·0.01 + 0.25 = 0.2575: x = −0.5/(0.507445 + 0.1)."""
    _, seen = rounds(Server(optimizer="adam", betas=(B1, B2), tau=TAU), [[upload([1.0, 0.0])]])
    assert seen[0] == pytest.approx([-0.823121, 0.0], rel=1e-5)


@pytest.mark.parametrize("kind", ["momentum", "adam", "yogi", "adagrad"])
def test_where_nobody_holds_neither_moments_nor_parameters_move(kind):
    server = Server(optimizer=kind)
    first = [upload([1.0, 1.0])]
    before, seen = rounds(server, [first])
    after, then = rounds(server, [first, [upload([1.0, 0.0], [True, False])]])
    assert then[1][1] == seen[0][1]
    assert then[1][0] != seen[0][0]
    for name, tensor in before.tensors.items():
        assert after.tensors[name][1] == tensor[1]
        assert after.tensors[name][0] != tensor[0]


def test_a_coordinate_of_one_holder_steps_by_that_holders_update():
    """Two clients, one of which holds the second coordinate: its mean is over one, and so is its moment."""
    both = [upload([1.0, 4.0]), upload([3.0, 0.0], [True, False])]
    state, _ = rounds(Server(optimizer="momentum"), [both])
    assert state.tensors["server.momentum"].tolist() == [2.0, 4.0]


def test_what_the_method_keeps_and_what_the_round_keeps_do_not_meet():
    """A method that makes its state anew each round loses nothing of the moments, and never sees them."""

    class Forgetful:
        personal = False
        seen: tuple[str, ...] = ()

        def update(self, state, client, upload):
            return State()

        def aggregate(self, state, params, sums):
            Forgetful.seen += tuple(state.tensors)
            return State(), sums.server_step(params, "holders", 1.0)

    state, params = State(), START
    for t in range(2):
        clients = [client(0, t)]
        outcome = [(clients[0], upload([1.0, 1.0]))]
        state, params, _ = merge(
            Forgetful(), state, params, clients, outcome, Server(optimizer="momentum", momentum=0.5)
        )
    assert state.tensors["server.momentum"].tolist() == [1.5, 1.5]
    assert Forgetful.seen == ()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "adm"}, "optimizer must be one of .*got 'adm'; did you mean 'adam'"),
        ({"merge": "mode"}, "merge must be one of"),
        ({"trim": 0.5}, "trim must be a share of the holders above 0 and below 1/2, got 0.5"),
        ({"momentum": 1.0}, r"momentum must be a number in \[0, 1\), got 1.0"),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers in \[0, 1\)"),
        ({"tau": 0.0}, "tau must be a positive number, got 0.0"),
    ],
)
def test_settings_are_checked_when_they_are_made(settings, said):
    with pytest.raises(ValueError, match=said):
        Server(**settings)


def test_a_learning_rate_of_another_optimiser_is_said():
    assert Server(optimizer="adam").cautions(0.01) == []
    assert Server(optimizer="momentum").cautions(1.0) == []
    (line,) = Server(optimizer="yogi").cautions(1.0)
    assert "1 is very large, 0.01 is usual" in line
