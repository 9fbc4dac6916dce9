"""Operations of slices as polynomials in their widths, against torch's counter on real slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedfibos.analysis.cost import forward_macs
from fedfibos.channels.axes import axes_table
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.macs import mac_cost
from fedfibos.data.images import TensorData
from fedfibos.methods._slicing import slice_of
from fedfibos.model import model_of
from fedfibos.submodel import full
from zoo import ZOO, zoo


@pytest.mark.parametrize("name", ZOO)
def test_operations_are_those_that_torch_counts(name):
    example = zoo(name)
    model = model_of(example.module, example=example.example_inputs, axes=example.table)
    data = TensorData(example.example_inputs, torch.zeros(len(example.example_inputs), dtype=torch.int64))
    params, generator = model.initial_params(), torch.Generator().manual_seed(4)
    for _ in range(2):
        widths = {a: int(torch.randint(1, n + 1, (), generator=generator)) for a, n in model.axes.sizes.items()}
        piece = slice_of(model, {axis: torch.arange(width) for axis, width in widths.items()})
        assert model.macs.at(widths) == forward_macs(model, params, piece, data)


def test_a_convolution_on_paper():
    """64 pixels, 9 weights for every pair of channels, a quarter of the pixels after pooling; then 5 classes."""
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.AvgPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.Flatten(), nn.Linear(96, 5)
    )
    model = model_of(module, example=torch.zeros(2, 1, 8, 8))
    a, b = model.axes.sizes
    for m, n in ((4, 6), (1, 1), (3, 2)):
        assert model.macs.at({a: m, b: n}) == 64 * 9 * m + 16 * 9 * m * n + 16 * 5 * n


class Mixer(nn.Module):
    """Positions of a product that are channels of an axis: a layer over the tokens of every channel."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.tokens = nn.Linear(7, 7)
        self.classifier = nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return self.classifier((x + self.tokens(x.transpose(1, 2)).transpose(1, 2)).mean(1))


def test_a_weight_that_is_used_for_every_channel():
    module = Mixer()
    axes = axes_table(module, {"embed": 8}, {"embed.weight": (None, "embed"), "classifier.weight": (None, "embed")})
    cost = mac_cost(module, axes, torch.zeros(3, 7, dtype=torch.int64))
    assert [cost.at({"embed": n}) for n in (8, 5, 1)] == [n * 7 * 7 + n * 5 for n in (8, 5, 1)]


class Ratio(nn.Module):
    """A layer is run as often as it is wide."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.second(h.expand(h.shape[1] ** 3, *h.shape)).mean(0)


def test_what_is_no_polynomial_of_degree_two_is_refused():
    module = Ratio()
    axes = axes_table(
        module, {"h": 8}, {"first.weight": ("h", None), "first.bias": ("h",), "second.weight": (None, "h")}
    )
    with pytest.raises(ValueError, match="the operations of this model are no product of its widths"):
        mac_cost(module, axes, torch.zeros(2, 4))


class Again(nn.Module):
    """Runs a layer once more where it is narrow."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(h + self.first(x) if h.shape[1] < 8 else h)


def test_a_model_that_chooses_how_often_it_runs_a_layer_is_refused():
    axes = axes_table(
        Again(), {"h": 8}, {"first.weight": ("h", None), "first.bias": ("h",), "last.weight": (None, "h")}
    )
    with pytest.raises(ValueError, match="the operations of this model are no product of its widths"):
        mac_cost(Again(), axes, torch.zeros(2, 4))


class Products(nn.Module):
    """A product beside a layer that torch's own counter leaves out."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *shape: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8, bias=False), nn.Linear(8, 4, bias=False)
        self.other, self.function = nn.Parameter(torch.randn(*shape)), function

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(h) + self.function(h, self.other)


@pytest.mark.parametrize(
    ("function", "shape", "each"),
    [
        (lambda h, w: (h @ w)[:, None], (8,), 8),
        (lambda h, w: nn.functional.bilinear(h, h, w), (4, 8, 8), 4 * 8 * 8),
        (torch.cdist, (4, 8), 4 * 8),
        (lambda h, w: torch._grouped_mm(h, w, offs=torch.tensor([1, 2], dtype=torch.int32)), (2, 8, 4), 8 * 4),
    ],
    ids=["matrix and vector", "bilinear", "distances", "groups"],
)
def test_products_that_torch_leaves_out_are_counted(function, shape, each):
    module, example = Products(function, *shape), torch.zeros(2, 5)
    axes = derive_axes(module, example)
    cost = mac_cost(module, axes, example)
    assert cost.at(axes.sizes) == 5 * 8 + 8 * 4 + each
    model, data = model_of(module, example=example), TensorData(example, torch.zeros(2, dtype=torch.int64))
    if shape != (2, 8, 4):  # groups end at numbers of rows: not for one example
        assert forward_macs(model, model.initial_params(), full(model.layout), data) == 5 * 8 + 8 * 4 + each
