"""What a rule of an operation needs of the trace it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from fedfibos.channels.factors import Dim

Dims = list[Dim]
"""The dimensions of a tensor."""

Rule = Callable[..., Any]
"""From the reader, an operation's result and its arguments to the dimensions of the result, or of each tensor of it."""


class Reader(Protocol):
    """What a rule needs of the trace it belongs to."""

    def dims(self, tensor: Tensor) -> Dims:
        """The dimensions of a tensor as known by now."""

    def unite(self, one: Dim, other: Dim) -> None:
        """Two dimensions are the same channels, or both stay whole."""

    def keep_whole(self, dim: Dim, what: str) -> None:
        """A dimension stays whole for what the operation does with it."""

    def regroup(self, dims: Dims, sizes: Sequence[int]) -> Dims:
        """The same positions in another shape."""

    def pieces(self, dim: Dim, sizes: Sequence[int]) -> Dims:
        """Consecutive pieces of a dimension."""

    def join(self, dims: Sequence[Dim]) -> Dim:
        """One dimension after another."""
