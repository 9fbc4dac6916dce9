"""The memory of slices as a polynomial in their widths, against what training steps take."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.backend.memory import peak_memory
from fedfibos.channels.family import with_nested
from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.methods._memory import memory_cost
from fedfibos.methods._slicing import slice_of
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from zoo import zoo

CASES = {
    "lenet": ({"momentum": 0.9}, "fedfibos-channels"),
    "cnn": ({"optimizer": "adamw"}, "heterofl"),
    "transformer": ({}, "fedfibos-channels"),
    "lenet-nested": ({"nested": 0.5, "levels": (0.5,)}, "fedfibos-channels"),
}


def model_named(name: str) -> Model:
    if name == "transformer":
        made = zoo(name)
        return model_of(made.module, example=made.example_inputs)
    norm = {"cnn": "batch"}.get(name, "none")
    hidden = {} if name == "cnn" else {"hidden": 32}
    module = build(name.partition("-")[0], 10, (3, 16, 16), norm=norm, channels=(16, 24), seed=1, **hidden)
    return model_of(module, example=torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("name", CASES)
def test_what_a_step_takes_is_near_what_is_counted(name):
    """At widths that it was not fitted to."""
    settings, method_name = CASES[name]
    model, method = model_named(name), METHODS[method_name]()
    local = LocalTraining(steps=2, batch_size=10, **settings)
    cost = memory_cost(model, local, method.train)
    params, generator = model.initial_params(), torch.Generator().manual_seed(9)
    example = model.example[torch.arange(10) % len(model.example)]
    client = Client(0, 1.0, 0, 7, local, TensorData(example, torch.zeros(10, dtype=torch.int64)))
    for _ in range(3):
        sizes = model.axes.sizes.items()
        widths = {a: int(torch.randint(max(n // 3, 2), n + 1, (), generator=generator)) for a, n in sizes}
        piece = slice_of(model, {axis: torch.arange(width) for axis, width in widths.items()})
        if local.nested:
            narrow = slice_of(model, {axis: torch.arange(width - 1) for axis, width in widths.items()})
            piece = with_nested(piece, [narrow], model.axes, model.layout)
        method.train(model, params, piece, client)
        taken = peak_memory(lambda piece=piece: method.train(model, params, piece, client))
        bound = cost.at(widths) / cost.per
        assert taken <= bound <= 1.03 * taken


class Chooses(nn.Module):
    """Runs one operation more where it is narrow."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = self.first(x).relu()
        return self.last(hidden.tanh() if self.first.weight.shape[0] < 10 else hidden)


def test_a_model_that_chooses_what_it_runs_is_fitted_as_a_whole():
    model, method = model_of(Chooses(), example=torch.zeros(2, 12)), METHODS["heterofl"](scaler=False)
    local = LocalTraining(steps=2, batch_size=10)
    cost = memory_cost(model, local, method.train)
    assert cost.others == ()
    client = Client(0, 1.0, 0, 7, local, TensorData(torch.zeros(10, 12), torch.zeros(10, dtype=torch.int64)))
    for width in (3, 7, 12):
        piece, params = slice_of(model, {"first": torch.arange(width)}), model.initial_params()
        method.train(model, params, piece, client)
        taken = peak_memory(lambda piece=piece, params=params: method.train(model, params, piece, client))
        assert 0.95 * taken <= cost.at({"first": width}) / cost.per <= 1.3 * taken


def test_a_model_without_an_example_cannot_be_measured():
    model = model_of(build("mlp", 4, (1, 8, 8), hidden=(16,)))
    with pytest.raises(ValueError, match="a budget of 'memory' needs a model with an example batch, got one without"):
        memory_cost(model, LocalTraining(), METHODS["heterofl"]().train)
