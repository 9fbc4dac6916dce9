"""Windows of channels, which slices of several tests hold."""

import torch
from torch import Tensor

from fedfibos.channels.axes import Axes


def windows(axes: Axes, ratio: float, start: int = 0) -> dict[str, Tensor]:
    """The first ⌈ratio · C⌉ channels of every axis, counted from ``start``, wrapping around."""
    return {axis: (torch.arange(width) + start) % axes.sizes[axis] for axis, width in axes.widths(ratio).items()}
