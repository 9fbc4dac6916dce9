"""SCAFFOLD: Algorithm 1, option II, written out; what variates are where few hold a coordinate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedfibos.data.images import TensorData
from fedfibos.methods import FedAvg
from fedfibos.model import model_of
from fedfibos.round import federated_round, merge
from fedfibos.server.scaffold import NOTHING, corrected, server_variate
from fedfibos.submodel import Mask, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State, Upload

MODEL = model_of(nn.Linear(2, 1, bias=False))
START = replace(MODEL.initial_params(), flat=torch.zeros(2))
LOCAL = LocalTraining(steps=4, lr=0.5, scaffold=True)


def upload(delta: list[float], held: list[bool] | None = None) -> Upload:
    mask = full(MODEL.layout) if held is None else Mask(torch.tensor(held), sum(held))
    return Upload(mask, torch.tensor(delta), 0.0, 4)


def after(uploads: dict[int, Upload], fleet: int, state: State = State()) -> State:  # noqa: B008
    clients = [Client(n, 1.0, 0, 0, LOCAL) for n in uploads]
    return merge(FedAvg(), state, START, clients, zip(clients, uploads.values(), strict=True), num_clients=fleet)[0]


def test_variates_of_two_rounds_in_numbers():
    """K·η = 2. Round 1: c_n = Δ_n/2, c = Σ c_n/N. Round 2: c_n⁺ = c_n − c + Δ_n/2. Fleet of 4, two take part."""
    state = after({0: upload([2.0, 4.0]), 1: upload([6.0, 0.0])}, 4)
    assert state.variates.get(0).tolist() == [1.0, 2.0]
    assert state.variates.get(1).tolist() == [3.0, pytest.approx(0.0, abs=1e-30)]
    c = server_variate(state, START, 4)
    assert c.tolist() == [1.0, 0.5]
    client = corrected(state, c, Client(1, 1.0, 1, 0, LOCAL), full(MODEL.layout))
    assert client.correction.tolist() == [-2.0, 0.5]
    state = after({1: upload([4.0, 2.0])}, 4, state)
    assert state.variates.get(1).tolist() == [4.0, 0.5]  # 3 − 1 + 2, 0 − 0.5 + 1
    assert server_variate(state, START, 4).tolist() == [1.25, 0.625]
    assert state.variates.get(2) is None


def test_a_client_that_did_not_hold_a_coordinate_keeps_its_variate_and_is_not_counted():
    state = after({0: upload([2.0, 4.0]), 1: upload([2.0, 0.0], [True, False])}, 2)
    assert state.variates.get(1).tolist() == [1.0, 0.0]
    assert server_variate(state, START, 2).tolist() == [1.0, 2.0]  # of the second the one holder's, not half of it
    held = Mask(torch.tensor([True, False]), 1)
    assert corrected(state, server_variate(state, START, 2), Client(1, 1.0, 1, 0, LOCAL), held).correction[1] == 0
    later = after({1: upload([2.0, 2.0])}, 2, state)
    assert later.variates.get(1).tolist() == [1.0, -1.0]  # 0 − 2 + 1: it holds it for the first time
    assert server_variate(later, START, 2).tolist() == [1.0, 0.5]


def test_with_one_holder_nothing_is_corrected():
    """Divided by all clients, the one holder's steps would be nearly 0."""
    state = after({n: upload([1.0, 8.0 * (n == 0)], [True, n == 0]) for n in range(10)}, 10)
    c = server_variate(state, START, 10)
    assert corrected(state, c, Client(0, 1.0, 1, 0, LOCAL), full(MODEL.layout)).correction.tolist() == [0.0, 0.0]


def test_a_held_coordinate_without_gradient_is_not_taken_for_one_never_held():
    state = after({0: upload([2.0, 0.0])}, 1)
    assert state.variates.get(0)[1] == NOTHING
    assert state.tensors["server.variate_holders"].tolist() == [1.0, 1.0]


def test_a_rejected_client_keeps_its_variate():
    state = after({0: upload([2.0, 4.0]), 1: upload([6.0, 0.0])}, 2)
    bad = upload([float("nan"), 0.0])
    later = after({0: upload([2.0, 4.0]), 1: bad}, 2, state)
    assert torch.equal(later.variates.get(1), state.variates.get(1))


INPUT, CLASSES = (1, 2, 2), 3


def data(n: int) -> TensorData:
    generator = torch.Generator().manual_seed(n)
    return TensorData(torch.randn(8, *INPUT, generator=generator) + n, torch.arange(8) % CLASSES)


def test_rounds_are_algorithm_one_option_two_written_out():
    """Two of two clients, full batches, three rounds of three steps, against the paper's loop on plain tensors."""
    torch.manual_seed(0)
    model = model_of(nn.Sequential(nn.Flatten(), nn.Linear(4, CLASSES, bias=False)), example=torch.zeros(2, *INPUT))
    eta, steps = 0.1, 3
    local = LocalTraining(steps=steps, batch_size=8, lr=eta, scaffold=True)
    params, method = model.initial_params(), FedAvg()
    state = method.init(params)
    x = params.flat.clone().view(CLASSES, 4)
    c, own = torch.zeros_like(x), [torch.zeros_like(x) for _ in range(2)]
    for t in range(3):
        clients = [Client(n, 1.0, t, 0, local, data(n)) for n in range(2)]
        state, params, _ = federated_round(method, model, state, params, clients)
        deltas, moved = [], []
        for n in range(2):
            y = x.clone()
            for _ in range(steps):
                y.requires_grad_(True)
                loss = cross_entropy(data(n).inputs.flatten(1) @ y.T, data(n).labels)
                (g,) = torch.autograd.grad(loss, y)
                y = (y - eta * (g - own[n] + c)).detach()
            new = own[n] - c + (x - y) / (steps * eta)
            deltas.append(y - x)
            moved.append(new - own[n])
            own[n] = new
        x = x + sum(deltas) / 2
        c = c + sum(moved) / 2
        torch.testing.assert_close(params.flat.view(CLASSES, 4), x)
    torch.testing.assert_close(server_variate(state, params, 2).view(CLASSES, 4), c)


def test_the_difference_is_counted_among_the_bytes_down():
    model = model_of(nn.Sequential(nn.Flatten(), nn.Linear(4, CLASSES)), example=torch.zeros(2, *INPUT))
    params, down = model.initial_params(), []
    for scaffold in (False, True):
        clients = [Client(0, 1.0, 0, 0, LocalTraining(scaffold=scaffold), data(0))]
        down.append(federated_round(FedAvg(), model, State(), params, clients)[2].bytes_down)
    assert down[1] - down[0] == 4 * model.layout.size


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "adamw"}, "scaffold needs optimizer = 'sgd', got 'adamw'"),
        ({"momentum": 0.9}, "scaffold is for plain SGD, momentum must be 0 with it, got 0.9"),
        ({"clip_norm": 1.0}, "clip_norm must be 0 with it, got 1.0"),
        ({"proximal": 0.1}, "proximal must be 0 with it, got 0.1"),
    ],
)
def test_what_a_variate_cannot_be_read_from_is_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        LocalTraining(scaffold=True, **settings)
