"""One round of FedRolex on twelve parameters by hand, its window and its coverage.

One input x = 1, four hidden units without activation, two classes, no biases; learning rate 1/2, one step, one example.

    W1 = (1/2, 1/2, 1/2, 1/2)    W2 = (3/4, 1/4, 3/4, 1/4)   class 0
                                      (1/4, 3/4, 1/4, 3/4)   class 1

Round 1, width 1/2, y = 0: the window holds hidden units 1 and 2. The scaler doubles the hidden layer's output:
h = (1, 1), both scores are 1, so the scores' gradient is (−1/2, 1/2). Gradient of h: −1/2 (1/4, 3/4) + 1/2 (3/4, 1/4) =
(1/4, −1/4); of W1 twice that.

    Δ W1 = (1/4, −1/4)    Δ W2 = (−1/4, −1/4), (1/4, 1/4)

Round 3: the window wraps around and holds units 3 and 0, whose columns are those of units 1 and 2: the same Δ.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.methods.fedrolex import FedRolex, window
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

LOCAL = LocalTraining(steps=1, batch_size=1, lr=0.5)


def client(capacity: float, t: int) -> Client:
    return Client(0, capacity, t, 0, LOCAL, TensorData(torch.ones(1, 1), torch.tensor([0])))


@pytest.mark.parametrize(
    ("t", "after"),
    [
        (1, [1 / 2, 1 / 4, 3 / 4, 1 / 2, 3 / 4, 1 / 2, 1, 1 / 4, 1 / 4, 1 / 2, 0, 3 / 4]),
        (3, [3 / 4, 1 / 2, 1 / 2, 1 / 4, 1, 1 / 4, 3 / 4, 1 / 2, 0, 3 / 4, 1 / 4, 1 / 2]),
    ],
)
def test_one_round(t, after):
    module = nn.Sequential(nn.Linear(1, 4, bias=False), nn.Linear(4, 2, bias=False))
    module[0].weight.data.fill_(1 / 2)
    module[1].weight.data = torch.tensor([[3 / 4, 1 / 4, 3 / 4, 1 / 4], [1 / 4, 3 / 4, 1 / 4, 3 / 4]])
    model, method = model_of(module, example=torch.zeros(2, 1)), FedRolex(capacity_basis="width")
    _, params, _ = federated_round(method, model, State(), model.initial_params(), [client(0.5, t)])
    assert params.flat.tolist() == after


@pytest.mark.parametrize(
    ("shift", "windows"),
    [
        (1, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1], [0, 1, 2]]),
        (-1, [[0, 1, 2], [4, 0, 1], [3, 4, 0], [2, 3, 4], [1, 2, 3], [0, 1, 2]]),
        (2, [[0, 1, 2], [2, 3, 4], [4, 0, 1], [1, 2, 3], [3, 4, 0], [0, 1, 2]]),
    ],
)
def test_windows_roll_and_wrap(shift, windows):
    assert [window(5, 3, shift * t).tolist() for t in range(6)] == windows


@given(st.integers(1, 40), st.integers(0, 100), st.data())
def test_a_smaller_window_is_a_prefix_of_a_larger_one(size, t, data):
    large = data.draw(st.integers(1, size))
    small = data.draw(st.integers(1, large))
    assert window(size, small, t).tolist() == window(size, large, t)[:small].tolist()
    assert len(set(window(size, large, t).tolist())) == large


def square(size: int) -> Model:
    """A model with a tensor of size x size whose inputs and outputs are different axes."""
    return model_of(build("mlp", 2, (1, 2, 2), seed=1, hidden=(size, size)), example=torch.zeros(2, 1, 2, 2))


@pytest.mark.parametrize(("size", "width"), [(8, 0.25), (8, 0.5), (8, 0.625), (16, 0.125), (16, 0.0625)])
def test_coverage_of_a_square_tensor(size, width):
    """Clients of L of C channels ever train min(1, (2L − 1)/C) of a C x C tensor, and every scalar of the vectors."""
    model, method = square(size), FedRolex(capacity_basis="width")
    ever = torch.zeros(model.layout.size)
    for t in range(2 * size):
        method.extract(model, State(), model.initial_params(), client(width, t)).count_in(ever, 1.0)
    seen = dict(zip(model.layout.names, model.layout.views((ever > 0).float()), strict=True))
    kept = round(size * width)
    assert float(seen["features.3.weight"].mean()) == pytest.approx(min(1, (2 * kept - 1) / size))
    assert bool(seen["features.3.bias"].all())
    assert bool(seen["features.1.weight"].all())


def test_every_channel_is_trained_equally_often():
    model, method = square(8), FedRolex(capacity_basis="width")
    times = torch.zeros(model.layout.size)
    for t in range(8):
        method.extract(model, State(), model.initial_params(), client(0.25, t)).count_in(times, 1.0)
    assert torch.equal(
        dict(zip(model.layout.names, model.layout.views(times), strict=True))["features.1.bias"], torch.full((8,), 2.0)
    )


def test_clients_of_a_round_share_the_start():
    model, method = square(8), FedRolex(capacity_basis="width")
    held = [
        set(method.extract(model, State(), model.initial_params(), client(width, 6)).index.tolist())
        for width in (0.75, 0.5, 0.25)
    ]
    assert held[2] < held[1] < held[0]
