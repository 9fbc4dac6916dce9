"""What a method keeps of each client: one vector a client, in memory here, in files in :mod:`fedfibos.scores.files`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from fedfibos.backend.reductions import all_finite


class Rows(Protocol):
    """One float32 vector per client: what a method keeps of each participant (its score, say)."""

    def get(self, client: int) -> Tensor | None:
        """The client's row, or None before its first."""

    def put(self, client: int, row: Tensor) -> Rows:
        """The store with that client's row replaced. Use only the returned store afterwards."""

    def revise(self, client: int, initial: Tensor, change: Callable[[Tensor, slice], Tensor]) -> Rows:
        """The store with that client's row (before its first: ``initial``) changed coordinate by coordinate.

        ``change`` maps a piece of the row, and where it lies, to the new piece; it may be called once for each of
        several pieces, so that a row need not fit in memory.
        """

    def clients(self) -> list[int]:
        """Ids of the clients that have a row, sorted."""


def sound(client: int, values: Tensor) -> Tensor:
    """The values of a client's row, or of a piece of it, as they are put.

    Raises:
        ValueError: One is not finite: every selection after it would be by it.
    """
    if not all_finite(values):
        bad = int((~values.isfinite()).sum())
        raise ValueError(f"the server's row of client {client} must be finite, got {bad} values that are not")
    return values


@dataclass(frozen=True)
class MemoryRows:
    """Rows in memory: an immutable mapping."""

    rows: Mapping[int, Tensor] = field(default_factory=dict)

    def get(self, client: int) -> Tensor | None:
        """See :class:`Rows`."""
        return self.rows.get(client)

    def put(self, client: int, row: Tensor) -> MemoryRows:
        """See :class:`Rows`."""
        return MemoryRows({**self.rows, client: sound(client, row)})

    def revise(self, client: int, initial: Tensor, change: Callable[[Tensor, slice], Tensor]) -> MemoryRows:
        """See :class:`Rows`."""
        row = self.rows.get(client, initial).to(initial.device)  # one from a checkpoint is on the CPU
        return self.put(client, change(row, slice(0, initial.numel())))

    def clients(self) -> list[int]:
        """See :class:`Rows`."""
        return sorted(self.rows)
