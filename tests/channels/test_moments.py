"""The memory of each moment of a step, as polynomials, worked out on paper."""

from __future__ import annotations

import torch
from torch import nn

from fedfibos.backend.memory import Lifetimes
from fedfibos.channels.costs import Cost, Shrinking
from fedfibos.channels.moments import PER_BYTE, peak_cost, probes
from fedfibos.model import Model, model_of


def narrow() -> Model:
    """One axis of four channels; its first weight has 3·w numbers."""
    return model_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), example=torch.zeros(2, 3))


def step(width: int, batch: int, extra: int = 0) -> Lifetimes:
    """A weight stays; activations of (4·w + 8)·batch bytes come and go; then 60 bytes come."""
    return Lifetimes((12 * width, (4 * width + 8) * batch, 60), (0, 1, ~1, 2) if not extra else (0, 1, 2, ~1))


def test_steps_are_looked_at_where_no_axis_is_whole():
    assert probes(narrow().axes) == [{"0": 3}, {"0": 1}]


def test_the_peak_is_at_one_moment_or_another():
    """At batches of 4: 12·w + 16·w + 32 while activations are there, 12·w + 60 after."""
    model = narrow()
    cost = peak_cost(model.axes, model.layout, [step(3, 2), step(1, 2)], step(3, 4))
    assert cost is not None
    assert cost.per == PER_BYTE
    assert {width: cost.at({"0": width}) / PER_BYTE for width in (1, 2, 4)} == {1: 72.0, 2: 88.0, 4: 144.0}


def test_steps_that_make_other_tensors_are_not_explained():
    model = narrow()
    assert peak_cost(model.axes, model.layout, [step(3, 2), step(1, 2, extra=1)], step(3, 4)) is None


def test_a_product_of_activations():
    """Memory that grows with two axes is a product where a sum would have a constant below 0."""
    model = model_of(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        example=torch.zeros(2, 3),
    )
    assert [(w["0"], w["2"]) for w in probes(model.axes)] == [(3, 6), (1, 6), (3, 3)]
    steps = [Lifetimes((20 * w["0"] * w["2"],), (0, ~0)) for w in probes(model.axes)]
    cost = peak_cost(model.axes, model.layout, steps, steps[0])
    assert cost is not None
    assert cost.at({"0": 2, "2": 5}) == 200 * PER_BYTE


def test_what_a_channel_saves_of_the_largest_of_two_sums():
    """max(28·w + 32, 12·w + 60): 4 -> 3 saves 28, 3 -> 2 saves 28, 2 -> 1 saves 88 − 72."""
    model = narrow()
    cost = peak_cost(model.axes, model.layout, [step(3, 2), step(1, 2)], step(3, 4))
    assert cost is not None
    left, saved = Shrinking([cost, Cost({(): 5})], model.axes.sizes), []
    while left.widths["0"] > 1:
        saved.append([n / PER_BYTE for n in left.saved("0")])
        left.drop("0")
    assert saved == [[28.0, 0.0], [28.0, 0.0], [16.0, 0.0]]
    assert left.totals == [72 * PER_BYTE, 5]
    assert left.neighbours("0") == ["0"]
