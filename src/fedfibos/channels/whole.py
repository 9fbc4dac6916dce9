"""What slices leave whole."""

from __future__ import annotations

from fedfibos.channels.axes import Axes
from fedfibos.params import Layout


def whole_share(axes: Axes, layout: Layout) -> float:
    """The share of the maskable parameters in tensors no dimension of which is cut."""
    uncut = (
        stop - start
        for name, start, stop in layout.maskable()
        if all(part.axis is None for dim in axes.dims[name] for part in dim)
    )
    return sum(uncut) / layout.num_maskable
