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
