"""Costs of slices as polynomials, and the chain of slices under a budget."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.costs import Cost, Length, Shrinking, parameter_cost
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.nested import UNSEEN, chain
from fedfibos.models import build
from fedfibos.params import layout_of
from zoo import ZOO, zoo

ONE = Cost({(Length(0, (("a", 1),)),): 1, (Length(0, (("b", 1),)),): 3})
"""a + 3b."""


@pytest.mark.parametrize("name", ZOO)
def test_parameters_are_counted_without_a_slice(name):
    example = zoo(name)
    axes, layout = example.axes(), layout_of(example.module)
    cost = parameter_cost(axes, layout)
    assert cost.at(axes.sizes) == layout.num_maskable
    for ratio in (0.9, 0.5, 0.3, 0.01):
        widths = axes.widths(ratio)
        assert cost.at(widths) == axes.small_layout(layout, widths).num_maskable


@pytest.mark.parametrize("name", ["resnet8_batch", "transformer", "concat", "lstm"])
def test_costs_are_kept_up_to_date_as_channels_go(name):
    example = zoo(name)
    axes, layout = example.axes(), layout_of(example.module)
    cost = parameter_cost(axes, layout)
    left, generator = Shrinking([cost], axes.sizes), torch.Generator().manual_seed(0)
    for _ in range(15):
        open_axes = [axis for axis, width in left.widths.items() if width > 1]
        axis = open_axes[int(torch.randint(len(open_axes), (), generator=generator))]
        wanted = cost.at({**left.widths, axis: left.widths[axis] - 1})
        assert left.saved(axis) == [left.totals[0] - wanted]
        left.drop(axis)
        assert left.totals == [wanted] == [cost.at(left.widths)]


def test_the_chain_on_paper():
    """Cost a + 3b, 2 + 2 channels: 8. Score over saving, savings in eighths: a .8/.125, .2/.125; b .9/.375, .3/.375."""
    scores = {"a": [0.8, 0.2], "b": [0.3, 0.9]}
    axes = Axes({"a": 2, "b": 2}, {})
    left = [chain(axes, scores, {"parameters": ONE}).kept(n / 8) for n in (8, 7, 5, 4)]
    assert left[0] == {"a": [0, 1], "b": [0, 1]}
    assert left[1] == {"a": [0, 1], "b": [1]}, "channel 0 of b has .3/.375 = .8, channel 1 of a .2/.125 = 1.6"
    assert left[2] == {"a": [0, 1], "b": [1]}
    assert left[3] == {"a": [0], "b": [1]}, "one channel an axis stays, so the next is a's"
    with pytest.raises(
        ValueError, match=r"capacity 0\.375 allows 3 of 8 parameters, the narrowest slice of the model has 4"
    ):
        chain(axes, scores, {"parameters": ONE}).kept(3 / 8)


def test_of_equal_channels_the_one_that_saves_most_goes_then_the_last():
    scores = {"a": [0.0, 0.0, 0.0], "b": [0.0, 0.0]}
    axes = Axes({"a": 3, "b": 2}, {})
    assert chain(axes, scores, {"parameters": ONE}).kept(8 / 9) == {"a": [0, 1, 2], "b": [0]}
    assert chain(axes, scores, {"parameters": ONE}).kept(5 / 9) == {"a": [0, 1], "b": [0]}
    assert chain(axes, scores | {"b": [0.0, UNSEEN]}, {"parameters": ONE}).kept(8 / 9) == {"a": [0, 1, 2], "b": [0]}
    assert chain(axes, scores | {"a": [UNSEEN, 0.0, 0.0]}, {"parameters": ONE}).kept(8 / 9) == {
        "a": [1, 2],
        "b": [0, 1],
    }


def test_several_budgets_at_once_are_all_kept():
    other = Cost({(Length(0, (("a", 1),)), Length(0, (("b", 1),))): 1})
    scores = {"a": [0.4, 0.3, 0.2, 0.1], "b": [0.4, 0.3, 0.2, 0.1]}
    axes = Axes({"a": 4, "b": 4}, {})
    kept = chain(axes, scores, {"parameters": ONE, "macs": other}).kept(0.5)
    a, b = len(kept["a"]), len(kept["b"])
    assert a + 3 * b <= 8
    assert a * b <= 8
    alone = chain(axes, scores, {"parameters": ONE}).kept(1 / 2)
    assert len(alone["a"]) + 3 * len(alone["b"]) <= 8


@pytest.mark.parametrize("name", ["resnet8_group", "transformer", "depthwise"])
def test_smaller_slices_lie_within_larger_ones(name):
    example = zoo(name)
    axes, cost = example.axes(), parameter_cost(example.axes(), layout_of(example.module))
    generator = torch.Generator().manual_seed(1)
    scores = {axis: torch.rand(size, generator=generator).tolist() for axis, size in axes.sizes.items()}
    before = {axis: list(range(size)) for axis, size in axes.sizes.items()}
    for share in (0.9, 0.5, 0.4):
        kept = chain(axes, scores, {"parameters": cost}).kept(share)
        widths = {axis: len(chosen) for axis, chosen in kept.items()}
        assert cost.at(widths) <= share * cost.at(axes.sizes) + 1e-9
        assert all(set(kept[axis]) <= set(before[axis]) for axis in kept)
        before = kept


def test_a_channel_that_nothing_maskable_holds_costs_nothing_and_stays():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    axes = axes_table(module, {"h": 4}, {"0.weight": ("h", None), "0.bias": (Part("h"),), "1.weight": (None, "h")})
    cost = parameter_cost(axes, layout_of(module, ["1.bias"]))
    assert chain(axes, {"h": [1.0, 2.0, 3.0, 4.0]}, {"parameters": cost}).kept(1.0) == {"h": [0, 1, 2, 3]}


def test_the_chain_of_a_resnet18_takes_less_than_a_second():
    module = build("resnet18", 10, (3, 32, 32), norm="batch")
    axes = derive_axes(module, torch.zeros(2, 3, 32, 32))
    cost = parameter_cost(axes, layout_of(module))
    scores = {
        axis: torch.rand(n, generator=torch.Generator().manual_seed(n)).tolist() for axis, n in axes.sizes.items()
    }
    started = time.process_time()
    chain(axes, scores, {"parameters": cost}).kept(1 / 16)
    assert time.process_time() - started < 1.0
    assert axes.num_units > 2000
