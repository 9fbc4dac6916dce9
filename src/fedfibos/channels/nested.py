"""A nested family of slices: channels are left out one by one, the least valuable for what it costs first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfibos.channels.axes import Axes
from fedfibos.channels.costs import Cost, Number, Shrinking, too_little
from fedfibos.submodel import exactly

UNSEEN = -1.0
"""Score of a channel that nobody has estimated: it goes before all others."""


@dataclass(frozen=True)
class Chain:
    """The order in which channels are left out. Every capacity is a point on it, so smaller slices lie within larger.

    Attributes:
        axes: The model's axes.
        costs: What is bounded, by name.
        order: Axis -> its channels, the best first.
        dropped: The axis of each channel that is left out, one after another, down to one channel an axis.
        totals: Of each cost, what is left of it after so many of them, from the whole model on.
    """

    axes: Axes
    costs: Mapping[str, Cost]
    order: Mapping[str, Sequence[int]]
    dropped: Sequence[str]
    totals: Sequence[Sequence[Number]]

    def kept(self, capacity: float) -> dict[str, list[int]]:
        """The channels that are left once every cost is at most that share of the full model's, and within its limit.

        Args:
            capacity: In (0, 1].

        Returns:
            Axis -> kept channels, ascending.

        Raises:
            ValueError: One channel an axis costs more.
        """
        share, count = exactly(capacity), 0
        for cost, totals in zip(self.costs.values(), self.totals, strict=True):
            most = cost.allowed(share, self.axes.sizes)
            count = max(count, sum(total > most for total in totals))
        if count > len(self.dropped):
            raise ValueError(too_little(share, self.axes, self.costs))
        widths = dict(self.axes.sizes)
        for axis in self.dropped[:count]:
            widths[axis] -= 1
        return {axis: sorted(order[: widths[axis]]) for axis, order in self.order.items()}


def chain(axes: Axes, scores: Mapping[str, Sequence[float]], costs: Mapping[str, Cost]) -> Chain:
    """The chain of those scores.

    The channel of least score for what it saves goes first (savings are shares of the full costs, summed over the
    costs); of equal ones the one that saves most, then the last in position. One channel an axis stays.

    Args:
        axes: The model's axes.
        scores: Axis -> score of each channel, at least 0, or :data:`UNSEEN`.
        costs: What is bounded, by name.
    """
    sizes = axes.sizes
    order = {axis: sorted(range(n), key=lambda c: (-scores[axis][c], c)) for axis, n in sizes.items()}
    left = Shrinking(list(costs.values()), sizes)
    full = [max(total, 1) for total in left.totals]
    number = {axis: -n for n, axis in enumerate(sizes)}

    def key(axis: str) -> tuple[float, float, int]:
        score = scores[axis][order[axis][left.widths[axis] - 1]]
        saved = sum(float(s / f) for s, f in zip(left.saved(axis), full, strict=True))
        if score > 0.0:
            score = score / saved if saved > 0.0 else math.inf
        return score, -saved, number[axis]

    keys = {axis: key(axis) for axis, size in sizes.items() if size > 1}
    dropped: list[str] = []
    totals: list[list[Number]] = [[total] for total in left.totals]
    while keys:
        axis = min(keys, key=keys.__getitem__)
        left.drop(axis)
        if left.widths[axis] == 1:
            del keys[axis]
        keys |= {other: key(other) for other in left.neighbours(axis) if other in keys}
        dropped.append(axis)
        for before, now in zip(totals, left.totals, strict=True):
            before.append(now)
    return Chain(axes, costs, order, dropped, totals)
