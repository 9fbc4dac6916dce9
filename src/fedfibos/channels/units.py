"""Channels that can't go one by one: whether they go together in units, such as heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedfibos.channels.axes import Axes, Dimension, Fit
from fedfibos.channels.factors import Factor, divide, keep_whole


def keep_units(
    axes: Axes, axis: str, factor: Factor, works: Callable[[Axes], bool], why: str, most: int | None = None
) -> None:
    """Let channels go together in the smallest units for which a table works; where there are none they stay whole.

    Args:
        axes: The table.
        axis: The axis whose channels can't go one by one.
        factor: What it is in the dimensions.
        works: Whether a table does, of the same axes.
        why: Why they stay whole where no units help.
        most: How many sizes of units are tried, the smallest; None: all.
    """
    for unit in [n for n in range(2, factor.size) if factor.size % n == 0][:most]:
        if works(in_units(axes, axis, unit)):
            keep_whole(divide([factor], unit)[1], f"channels go together in units of {unit}")
            return
    keep_whole([factor], why)


def in_units(axes: Axes, axis: str, unit: int) -> Axes:
    """The same table with so many neighbouring channels of an axis as one."""

    def dimension(dim: Dimension) -> Dimension:
        return tuple(replace(part, after=part.after * unit) if part.axis == axis else part for part in dim)

    def fit(sizes: Fit) -> Fit:
        return tuple(None if entry is None else (dimension(entry[0]), *entry[1:]) for entry in sizes)

    return replace(
        axes,
        sizes={**axes.sizes, axis: axes.sizes[axis] // unit},
        dims={name: tuple(map(dimension, own)) for name, own in axes.dims.items()},
        features={name: dimension(dim) for name, dim in axes.features.items()},
        sites={site: tuple(map(fit, times)) for site, times in axes.sites.items()},
    )
