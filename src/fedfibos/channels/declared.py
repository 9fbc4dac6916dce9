"""What a module says of its own channels, where its graph does not tell."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import nn

from fedfibos.channels.axes import Axes


@runtime_checkable
class NamesAxes(Protocol):
    """A module whose channel axes can't be derived and that names them itself."""

    def channel_axes(self) -> Axes:
        """The table; see :func:`fedfibos.channels.axes.axes_table`."""


@runtime_checkable
class NamesUnits(Protocol):
    """A module that knows which channels belong together: attention heads."""

    def channel_units(self) -> dict[str, int]:
        """Layer -> channels of its output that only go together (``derive_axes``)."""


def named_axes(module: nn.Module) -> Axes | None:
    """The axes that a module names itself; None where they are to be derived."""
    return module.channel_axes() if isinstance(module, NamesAxes) and _own(module, module.channel_axes) else None


def named_units(module: nn.Module) -> dict[str, int]:
    """Layer -> channels that belong together, where only the model knows it."""
    return module.channel_units() if isinstance(module, NamesUnits) and _own(module, module.channel_units) else {}


def _own(module: nn.Module, said: object) -> bool:
    """Whether it is the module's own word: a wrapper may pass on that of what it wraps, which has other names there."""
    return callable(said) and getattr(said, "__self__", module) is module
