"""A nested family of slices: channels are left out one by one, the least valuable for what it costs first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedfibos.channels.axes import Axes
from fedfibos.channels.costs import Cost, Shrinking, too_little
from fedfibos.submodel import exactly

UNSEEN = -1.0
"""Score of a channel that nobody has estimated: it goes before all others."""


def narrowed(
    axes: Axes, scores: Mapping[str, Sequence[float]], costs: Mapping[str, Cost], capacity: float
) -> dict[str, list[int]]:
    """The channels that are left once every cost is at most a share of the full model's.

    The channel of least score for what it saves goes first (savings are shares of the full costs, summed over the
    costs); of equal ones the one that saves most, then the last in position. One channel an axis stays. The order does
    not depend on the share, so a smaller slice lies within a larger one.

    Args:
        axes: The model's axes.
        scores: Axis -> score of each channel, at least 0, or :data:`UNSEEN`.
        costs: What is bounded, by name.
        capacity: Share of each of the full model's costs, in (0, 1].

    Returns:
        Axis -> kept channels, ascending.

    Raises:
        ValueError: One channel an axis costs more.
    """
    sizes = axes.sizes
    order = {axis: sorted(range(n), key=lambda c: (scores[axis][c], -c), reverse=True) for axis, n in sizes.items()}
    left, share = Shrinking(list(costs.values()), sizes), exactly(capacity)
    limits = [math.floor(share * n) if isinstance(n, int) else share * n for n in left.totals]
    full = [max(total, 1) for total in left.totals]
    number = {axis: -n for n, axis in enumerate(sizes)}

    def key(axis: str) -> tuple[float, float, int]:
        score = scores[axis][order[axis][-1]]
        saved = sum(float(s / f) for s, f in zip(left.saved(axis), full, strict=True))
        if score > 0.0:
            score = score / saved if saved > 0.0 else float("inf")
        return score, -saved, number[axis]

    keys = {axis: key(axis) for axis, size in sizes.items() if size > 1}
    while any(total > limit for total, limit in zip(left.totals, limits, strict=True)):
        if not keys:
            raise ValueError(too_little(share, axes, costs))
        axis = min(keys, key=keys.__getitem__)
        left.drop(axis)
        order[axis].pop()
        if left.widths[axis] == 1:
            del keys[axis]
        keys |= {other: key(other) for other in left.neighbours(axis) if other in keys}
    return {axis: sorted(kept) for axis, kept in order.items()}
