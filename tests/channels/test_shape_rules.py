"""What operations on shapes do with channels: the axis that is left, and how the next layer reads it."""

import pytest
import torch
from between import Between
from torch import nn

from fedfibos.channels.axes import Part
from fedfibos.channels.derive import derive_axes

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("function", "inputs", "size", "read"),
    [
        (torch.relu, 6, 6, (Part("first", 1, 1),)),
        (lambda h: h.softmax(-1), 6, 6, (Part("first", 1, 1),)),
        (lambda h: torch.cat([h, h.tanh()], 1), 12, 6, (Part("first", 1, 1), Part("first", 1, 1))),
        (lambda h: torch.stack([h, h], 1).flatten(1), 12, 6, (Part("first", 2, 1),)),
        (lambda h: h.view(-1, 2, 3).transpose(1, 2).reshape(-1, 6), 6, 2, (Part("first", 3, 1),)),
        (lambda h: h.view(-1, 3, 2).sum(2), 3, 3, (Part("first", 1, 1),)),
        (nn.functional.glu, 3, 3, (Part("first", 1, 1),)),
    ],
    ids=["relu", "softmax", "cat", "stack", "transpose", "sum of pairs", "glu"],
)
def test_channels_are_followed(function, inputs, size, read):
    axes = derive_axes(Between(function, inputs), X)
    assert axes.sizes == {"first": size}
    assert axes.whole == {}
    assert axes.dims["last.weight"][1] == read


@pytest.mark.parametrize(
    ("function", "name"),
    [(lambda h: h.flip(-1), "flip"), (lambda h: h.cumsum(1), "cumsum"), (lambda h: h.sort(1).values, "sort")],
    ids=["flip", "cumsum", "sort"],
)
def test_channels_whose_order_counts_stay_whole(function, name):
    axes = derive_axes(Between(function), X)
    assert axes.sizes == {}
    assert axes.whole == {"first": f"the model itself reads them in their order ({name})"}


def test_a_diagonal_matrix_has_the_channels_of_its_diagonal():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u, self.s, self.last = nn.Linear(4, 6), nn.Parameter(torch.rand(6)), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.u(x) @ torch.diag(self.s))

    axes = derive_axes(Scaled(), X)
    assert axes.sizes == {"u": 6}
    assert axes.dims["u.weight"][0] == axes.dims["s"][0] == (Part("u"),)


def test_products_of_channels_with_themselves_stay_whole_and_the_reason_says_why():
    axes = derive_axes(Between(lambda h: (h[:, :, None] * h[:, None]).flatten(1), 36), X)
    assert axes.sizes == {}
    assert axes.whole == {"first": "each lies with every other of them in one dimension"}


@pytest.mark.parametrize(
    "function",
    [lambda h: torch.complex(h, h).abs(), lambda h: torch.autograd.functional.vjp(nn.functional.softplus, h, h)[1]],
    ids=["complex", "gradient"],
)
def test_complex_numbers_and_gradients_of_a_models_own_are_followed(function):
    assert derive_axes(Between(function), X).sizes == {"first": 6}
