"""What slices leave whole."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from fedfibos.channels.axes import Axes
from fedfibos.params import Layout

FROZEN = "it is frozen"
"""Why channels of parameters that are not trained stay whole, where that is asked for."""


def trained_whole(axes: Axes, module: nn.Module) -> Mapping[str, str]:
    """Trained layers that slices leave whole, and why; without those that ``frozen_whole`` asks for."""
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    return {
        layer: why
        for layer, why in axes.whole.items()
        if why != FROZEN and any(name == layer or name.startswith(f"{layer}.") for name in trained)
    }


def whole_share(axes: Axes, layout: Layout) -> float:
    """The share of the maskable parameters in tensors no dimension of which is cut."""
    uncut = (
        stop - start
        for name, start, stop in layout.maskable()
        if all(part.axis is None for dim in axes.dims[name] for part in dim)
    )
    return sum(uncut) / layout.num_maskable
