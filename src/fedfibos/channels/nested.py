"""A nested family of slices: channels are left out one by one, the least valuable for what it costs first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from fedfibos.channels.costs import Cost, Shrinking

UNSEEN = -1.0
"""Score of a channel that nobody has estimated: it goes before all others."""


def narrowed(
    sizes: Mapping[str, int], scores: Mapping[str, Sequence[float]], costs: Sequence[Cost], share: Fraction
) -> dict[str, list[int]]:
    """The channels that are left once every cost is at most a share of the full model's.

    The channel of least score for what it saves goes first (savings are shares of the full costs, summed over the
    costs); of equal ones the one that saves most, then the last in position. One channel an axis stays. The order does
    not depend on the share, so a smaller slice lies within a larger one.

    Args:
        sizes: Axis -> channels.
        scores: Axis -> score of each channel, at least 0, or :data:`UNSEEN`.
        costs: What is bounded.
        share: Of each of the full model's costs, in (0, 1].

    Returns:
        Axis -> kept channels, ascending.

    Raises:
        ValueError: One channel an axis costs more.
    """
    order = {axis: sorted(range(n), key=lambda c: (scores[axis][c], -c), reverse=True) for axis, n in sizes.items()}
    left = Shrinking(costs, sizes)
    limits = [share * total for total in left.totals]
    full = [max(total, 1) for total in left.totals]
    number = {axis: -n for n, axis in enumerate(sizes)}

    def key(axis: str) -> tuple[float, float, int]:
        score = scores[axis][order[axis][-1]]
        saved = sum(s / f for s, f in zip(left.saved(axis), full, strict=True))
        if score > 0.0:
            score = score / saved if saved > 0.0 else float("inf")
        return score, -saved, number[axis]

    keys = {axis: key(axis) for axis, size in sizes.items() if size > 1}
    while any(total > limit for total, limit in zip(left.totals, limits, strict=True)):
        if not keys:
            raise ValueError(
                f"a share of {float(share):g} allows {', '.join(f'{float(limit):.0f}' for limit in limits)}, "
                f"one channel an axis takes {', '.join(map(str, left.totals))}"
            )
        axis = min(keys, key=keys.__getitem__)
        left.drop(axis)
        order[axis].pop()
        if left.widths[axis] == 1:
            del keys[axis]
        keys |= {other: key(other) for other in left.neighbours(axis) if other in keys}
    return {axis: sorted(kept) for axis, kept in order.items()}
