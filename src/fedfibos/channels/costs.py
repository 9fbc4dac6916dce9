"""What a slice costs, as polynomials in its widths: known once for a model, evaluated without building a slice."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from fedfibos.channels.axes import Axes, Dimension
from fedfibos.params import Layout
from fedfibos.submodel import exactly

Number = int | Fraction

Bounded = Literal["parameters", "macs", "memory", "bytes"]
"""What a budget may bound: maskable parameters, multiply-accumulate operations of an example's forward pass, bytes of
the tensors of a training step at its peak, bytes of a round both ways."""


@dataclass(frozen=True)
class Length:
    """A number of positions that grows with widths: ``constant + Σ each · width``.

    Attributes:
        constant: Positions that are never cut.
        each: ``(axis, positions of one of its channels)``.
    """

    constant: int
    each: tuple[tuple[str, int], ...]

    def at(self, widths: Mapping[str, int]) -> int:
        """The number at those widths."""
        return self.constant + sum(n * widths[axis] for axis, n in self.each)


@dataclass(frozen=True)
class Cost:
    """A sum of products of lengths, or the largest of several.

    Attributes:
        terms: Lengths that are multiplied -> factor.
        others: Other such sums; the cost is the largest (memory, whose peak is at one moment or another of a step).
        per: How many make one of what the cost is named for (8 bits a byte).
        whole: What the whole model costs, where that is not what the terms make of a slice that leaves nothing out.
        limit: What a slice of any capacity may cost at most, as a device's own units say; None: no such limit.
        shared: Whether a capacity is a share of this cost, too; else only the limit counts.
    """

    terms: Mapping[tuple[Length, ...], Number]
    per: int = 1
    whole: Number | None = None
    limit: Number | None = None
    shared: bool = True
    others: tuple[Mapping[tuple[Length, ...], Number], ...] = ()

    @property
    def sums(self) -> tuple[Mapping[tuple[Length, ...], Number], ...]:
        """All sums, of which the largest counts."""
        return (self.terms, *self.others)

    def allowed(self, share: Fraction, sizes: Mapping[str, int]) -> Number:
        """What a slice of a capacity may cost at most."""
        whole = self.of_all(sizes)
        most = whole if not self.shared else math.floor(share * whole) if isinstance(whole, int) else share * whole
        return most if self.limit is None else min(most, self.limit)

    def of_all(self, sizes: Mapping[str, int]) -> Number:
        """The cost of the whole model, of which capacities are shares."""
        return self.at(sizes) if self.whole is None else self.whole

    def at(self, widths: Mapping[str, int]) -> Number:
        """The cost of a slice of those widths; all axes are given."""
        return max(_sum_at(terms, widths) for terms in self.sums)


def _sum_at(terms: Mapping[tuple[Length, ...], Number], widths: Mapping[str, int]) -> Number:
    total: Number = 0
    for lengths, factor in terms.items():
        for length in lengths:
            factor *= length.at(widths)
        total += factor
    return total


def length_of(dim: Dimension) -> Length:
    """Of a dimension of a tensor."""
    each: dict[str, int] = defaultdict(int)
    constant = 0
    for part in dim:
        if part.axis is None:
            constant += part.before * part.after
        else:
            each[part.axis] += part.before * part.after
    return Length(constant, tuple(sorted(each.items())))


def tensor_cost(axes: Axes, factors: Iterable[tuple[str, Number]]) -> Cost:
    """Σ factor · number of scalars of a tensor, over ``(name, factor)``."""
    terms: dict[tuple[Length, ...], Number] = defaultdict(int)
    for name, factor in factors:
        lengths = []
        for length in map(length_of, axes.dims[name]):
            if length.each:
                lengths.append(length)
            else:
                factor *= length.constant
        terms[tuple(lengths)] += factor
    return Cost(terms)


def parameter_cost(axes: Axes, layout: Layout) -> Cost:
    """The maskable parameters of a slice, exactly."""
    return tensor_cost(axes, [(name, 1) for name, _, _ in layout.maskable()])


def byte_cost(axes: Axes, layout: Layout, each: int, a_channel: int = 0) -> Cost:
    """Bits of a round's payloads, down and up together, before compression.

    Args:
        axes: The model's axes.
        layout: Layout of the full model.
        each: Bits for every parameter that is held.
        a_channel: Bits for every channel that is held.
    """
    terms = dict(tensor_cost(axes, [(name, each) for name in layout.names]).terms)
    for axis in axes.sizes:
        channels = (Length(0, ((axis, 1),)),)
        terms[channels] = terms.get(channels, 0) + a_channel
    return Cost(terms, 8)


def width_within(axes: Axes, costs: Mapping[str, Cost], capacity: float) -> float:
    """The largest width at which each cost of the slice is at most that share of the full model's.

    Parameters grow with about the square of the width: capacity .5 of ResNet-18 is width .707. Costs are step
    functions of the width with steps at the multiples of ``1 / C``, which are searched by bisection.

    Args:
        axes: The model's axes.
        costs: What is bounded, by name.
        capacity: The share, in (0, 1].

    Raises:
        ValueError: Capacity outside (0, 1], or below what a single channel on every axis takes.
    """
    steps = sorted({k / size for size in axes.sizes.values() for k in range(1, size + 1)} | {1.0})
    share = exactly(capacity)
    most = {name: cost.allowed(share, axes.sizes) for name, cost in costs.items()}

    def over(width: float) -> bool:
        widths = axes.widths(width)
        return any(cost.at(widths) > most[name] for name, cost in costs.items())

    if all(cost.of_all(axes.sizes) <= most[name] for name, cost in costs.items()):
        return 1.0  # the whole model may cost less than a slice that leaves nearly nothing out
    fitting = bisect.bisect_left(steps, True, key=over)
    if fitting == 0:
        raise ValueError(too_little(share, axes, costs))
    return steps[fitting - 1]


def too_little(share: Fraction, axes: Axes, costs: Mapping[str, Cost]) -> str:
    """Why no slice keeps within that share: what is allowed, and what one channel an axis takes."""
    narrowest = dict.fromkeys(axes.sizes, 1)
    name, cost = next((n, c) for n, c in costs.items() if c.at(narrowest) > c.allowed(share, axes.sizes))
    needed = max(c.at(narrowest) / c.of_all(axes.sizes) for c in costs.values())
    smallest = math.ceil(needed * 1000) / 1000
    fits = all(c.shared and c.limit is None for c in costs.values()) and smallest <= 1
    return (
        f"capacity {float(share):g} allows {math.floor(cost.allowed(share, axes.sizes) / cost.per)} of "
        f"{math.floor(cost.of_all(axes.sizes) / cost.per)} {_named(name)}, the narrowest slice of the model has "
        f"{math.ceil(cost.at(narrowest) / cost.per)}" + (f": take a capacity of at least {smallest:g}" if fits else "")
    )


def _named(cost: str) -> str:
    return {"memory": "bytes of memory", "bytes": "bytes a round"}.get(cost, cost)


class Shrinking:
    """Costs of a slice that loses one channel after another, kept up to date in the terms that change.

    Attributes:
        widths: Axis -> channels that are left.
    """

    def __init__(self, costs: Sequence[Cost], sizes: Mapping[str, int]) -> None:
        self.widths = dict(sizes)
        self._terms: list[tuple[int, Number, list[dict[str, int]], list[int]]] = []
        self._touched: dict[str, list[int]] = {axis: [] for axis in sizes}
        self._neighbours: dict[str, list[str]] = {}
        sums = [(number, terms) for number, cost in enumerate(costs) for terms in cost.sums]
        self._of = [[n for n, (number, _) in enumerate(sums) if number == cost] for cost in range(len(costs))]
        self._totals = [_sum_at(terms, sizes) for _, terms in sums]
        self._saved: list[dict[str, Number]] = [dict.fromkeys(sizes, 0) for _ in sums]
        for number, (_, terms) in enumerate(sums):
            for lengths, factor in terms.items():
                term = len(self._terms)
                self._terms.append((number, factor, [dict(n.each) for n in lengths], [n.at(sizes) for n in lengths]))
                for axis in dict.fromkeys(axis for length in lengths for axis, _ in length.each):
                    self._touched[axis].append(term)
                self._account(term, 1)

    @property
    def totals(self) -> list[Number]:
        """Each cost at these widths."""
        return [max(self._totals[n] for n in of) for of in self._of]

    def saved(self, axis: str) -> list[Number]:
        """How much of each cost the axis's next channel takes."""
        after = [max(self._totals[n] - self._saved[n][axis] for n in of) for of in self._of]
        return [now - then for now, then in zip(self.totals, after, strict=True)]

    def neighbours(self, axis: str) -> list[str]:
        """The axes whose savings change with a channel of this one, itself included."""
        if any(len(of) > 1 for of in self._of):  # another sum may be the largest
            return list(self.widths)
        if axis not in self._neighbours:
            touched = [each for term in self._touched[axis] for each in self._terms[term][2]]
            self._neighbours[axis] = list(dict.fromkeys([axis, *(other for each in touched for other in each)]))
        return self._neighbours[axis]

    def drop(self, axis: str) -> None:
        """Take one channel away."""
        self.widths[axis] -= 1
        for total, saved in enumerate(self._saved):
            self._totals[total] -= saved[axis]
        for term in self._touched[axis]:
            self._account(term, -1)
            _, _, each, lengths = self._terms[term]
            for i, of in enumerate(each):
                lengths[i] -= of.get(axis, 0)
            self._account(term, 1)

    def _account(self, term: int, sign: int) -> None:
        """Add a term's part to what each of its axes saves, or take it back."""
        number, factor, each, lengths = self._terms[term]
        now = factor
        for length in lengths:
            now *= length
        saved = self._saved[number]
        for axis in {axis for of in each for axis in of}:
            then = factor
            for of, length in zip(each, lengths, strict=True):
                then *= length - of.get(axis, 0)
            saved[axis] += sign * (now - then)
