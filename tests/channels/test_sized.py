"""Calls that write sizes: the numbers in them, and the same call for narrower tensors."""

import pytest
import torch
from between import Between
from torch import nn

from fedfibos.channels.derive import derive_axes
from fedfibos.channels.resize import resize_module
from fedfibos.channels.sized import numbers, own_pieces

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def test_numbers_among_arguments():
    assert numbers((1, [2, (3,)], "x", 0.5)) == [1, 2, 3]
    assert numbers({"sizes": (4, -1)}) == [4, -1]
    assert numbers((slice(None, 3), slice(1, None))) == [(0, 3), (1, None)]


def test_the_pieces_that_a_call_asks_for():
    assert own_pieces(torch.split, (torch.zeros(5, 7), 3, 1), {}) == [3, 3, 1]
    assert own_pieces(torch.split, (torch.zeros(5, 7), [3, 3], 1), {}) is None


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda h: h.view(len(h), 6), 6),
        (lambda h: torch.cat(h.split([3, 3], 1)[::-1], 1), 6),
        (lambda h: torch.cat([h[:, :3], h[:, 3:]], 1), 6),
        (lambda h: nn.functional.layer_norm(h, (6,)), 6),
    ],
    ids=["view", "split", "slices", "layer norm"],
)
def test_sizes_follow_the_slice(function, inputs):
    module = Between(function, inputs)
    axes = derive_axes(module, X)
    assert axes.sizes
    small = resize_module(module, axes, {axis: size - 1 for axis, size in axes.sizes.items()})
    assert small(X).shape == (5, 3)
    assert small.first.weight.shape[0] < 6


class Old(nn.Module):
    """Groups, first states and stacks of examples and channels, as numbers of the constructor."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.width = how, 6
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.kernel = nn.Parameter(torch.randn(6, 1, 3))
        self.register_buffer("blur", torch.ones(1, 1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        if self.how == "depthwise":
            h = nn.functional.conv1d(h[:, :, None], self.kernel, None, 1, 1, 1, self.width)[..., 0]
        elif self.how == "blur":
            h = nn.functional.conv1d(h[..., None], self.blur.expand(self.width, -1, -1), padding=1, groups=self.width)[
                ..., 0
            ]
        elif self.how == "new":
            h = h + x.data.new(len(x), self.width).zero_()
        elif self.how == "tile":
            h = h * x.sum(1, keepdim=True).tile(1, self.width)
        else:
            h = h.reshape(len(x) * self.width, 1).relu().view(len(x), self.width)
        return self.last(h)


@pytest.mark.parametrize("how", ["depthwise", "blur", "new", "tile", "stacked"])
def test_numbers_of_the_constructor_follow_the_slice_on_any_batch(how):
    module = Old(how)
    axes = derive_axes(module, X)
    assert axes.sizes == {"first": 6}
    small = resize_module(module, axes, {"first": 2})
    torch.testing.assert_close(small(X)[:2], small(X[:2]))
    assert small(torch.cat([X, X, X])).shape == (15, 3)
