"""The memory of a slice's training step at each of its moments, as polynomials in its widths.

A step makes the same tensors one after another, whatever the widths; only their sizes differ. So steps at a few widths
tell of every tensor how it grows, and when each comes and goes what is alive at any moment. The peak is the largest of
these sums; few of them are ever the largest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from fedfibos.backend.memory import Lifetimes
from fedfibos.channels.axes import Axes
from fedfibos.channels.costs import Cost, Length, Number, tensor_cost
from fedfibos.common.streams import stream
from fedfibos.params import Layout

PER_BYTE = 1024
"""Factors are whole numbers: costs are in 1024ths of a byte."""

SAMPLES = 200
"""Widths at which is looked which moments have the peak."""

NEAR = 0.99
"""Moments are left out where the others come so near to the peak at every one of these widths."""

Terms = Mapping[tuple[Length, ...], Number]


def probes(axes: Axes) -> list[dict[str, int]]:
    """The widths of the steps that are looked at: three quarters of every axis, and each axis once at a half of that.

    No axis is whole, as a model that nothing is cut from may be trained otherwise.
    """
    base = {axis: max(size * 3 // 4, 1) for axis, size in axes.sizes.items()}
    return [base, *({**base, axis: max(width // 2, 1)} for axis, width in base.items())]


def peak_cost(axes: Axes, layout: Layout, small: Sequence[Lifetimes], full: Lifetimes) -> Cost | None:
    """Bytes at the peak, as a cost in 1024ths of them; None where steps do not make the same tensors.

    Args:
        axes: The model's axes.
        layout: Layout of the full model.
        small: A step at each of the widths of :func:`probes`, on small batches.
        full: The first of them on batches of full size.
    """
    if any(step.order != full.order for step in small):
        return None
    sizes = np.array([step.sizes for step in small], dtype=np.float64)
    grown = [Fraction(large, max(at_base, 1)) for large, at_base in zip(full.sizes, small[0].sizes, strict=True)]
    known = [tensor_cost(axes, [(name, 4)]) for name in layout.names]
    known.append(tensor_cost(axes, [(name, 4) for name in layout.names]))
    of_known = {tuple(float(cost.at(widths)) for widths in probes(axes)): cost.terms for cost in known}
    pieces = [
        _times(of_known.get(tuple(column)) or _of_axes(axes, column), times)
        for column, times in zip(sizes.T, grown, strict=True)
    ]
    chosen = _largest(_curves(pieces, full.order, _samples(axes)))
    sums = [_rounded(_alive(pieces, full.order, moment)) for moment in chosen]
    return Cost(sums[0], PER_BYTE, others=tuple(sums[1:]))


def _of_axes(axes: Axes, column: NDArray[np.float64]) -> Terms:
    """How one tensor's bytes depend on the widths: a sum over axes, or the product of those that it grows with."""
    base, *others = probes(axes)
    found: dict[str, Fraction] = {}
    for axis, other, less in zip(base, others, column[1:], strict=True):
        if less != column[0]:
            found[axis] = Fraction(int(column[0] - less), base[axis] - other[axis])
    constant = int(column[0]) - sum(each * base[axis] for axis, each in found.items())
    if constant < 0:
        lengths = tuple(Length(0, ((axis, 1),)) for axis in found)
        return {lengths: Fraction(int(column[0]), math.prod(base[axis] for axis in found))}
    return {(): constant, **{(Length(0, ((axis, 1),)),): each for axis, each in found.items()}}


def _samples(axes: Axes) -> list[dict[str, int]]:
    drawn = stream(0, "widths of the memory's moments")
    unequal = [
        {axis: int(torch.randint(1, size + 1, (), generator=drawn)) for axis, size in axes.sizes.items()}
        for _ in range(SAMPLES)
    ]
    return unequal + [axes.widths(ratio) for ratio in (1.0, 0.7, 0.5, 0.35, 0.25, 0.12, 0.06, 1e-9)]


def _curves(pieces: Sequence[Terms], order: Sequence[int], widths: Sequence[Mapping[str, int]]) -> NDArray[np.float64]:
    """Bytes alive after each thing that happens, at each of the widths; shape ``(widths, order)``."""
    columns = {axis: np.array([each[axis] for each in widths], dtype=np.float64) for axis in widths[0]}
    kinds = {id(terms): terms for terms in pieces}
    at = {key: _sizes(terms, columns, len(widths)) for key, terms in kinds.items()}
    sizes = np.stack([at[id(terms)] for terms in pieces], axis=1)
    signs = np.array([1 if number >= 0 else -1 for number in order])
    curves: NDArray[np.float64] = np.cumsum(sizes[:, [n if n >= 0 else ~n for n in order]] * signs, axis=1)
    return curves


def _sizes(terms: Terms, columns: Mapping[str, NDArray[np.float64]], count: int) -> NDArray[np.float64]:
    """Of one tensor at all of the widths, in floating point: they only choose among moments."""
    total = np.zeros(count)
    for lengths, factor in terms.items():
        product = np.full(count, float(factor))
        for length in lengths:
            product *= length.constant + sum(each * columns[axis] for axis, each in length.each)
        total += product
    return total


def _largest(curves: NDArray[np.float64]) -> list[int]:
    """Few moments, one of which is near the peak at all widths."""
    peaks, chosen = np.maximum(curves.max(axis=1), 1.0), [int(curves.max(axis=0).argmax())]
    while True:
        near = curves[:, chosen].max(axis=1) / peaks
        if float(near.min()) >= NEAR:
            return chosen
        chosen.append(int(curves[int(near.argmin())].argmax()))


def _alive(pieces: Sequence[Terms], order: Sequence[int], moment: int) -> Terms:
    """The sum of what is alive then."""
    terms: dict[tuple[Length, ...], Number] = defaultdict(int)
    for number in order[: moment + 1]:
        for lengths, factor in pieces[max(number, ~number)].items():
            terms[lengths] += factor if number >= 0 else -factor
    return terms


def _times(terms: Terms, factor: Fraction) -> Terms:
    return {lengths: of * factor for lengths, of in terms.items()}


def _rounded(terms: Terms) -> Terms:
    return {lengths: math.ceil(PER_BYTE * factor) for lengths, factor in terms.items() if factor}
