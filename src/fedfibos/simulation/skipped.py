"""Rounds without a usable upload: skipped, counted, and not for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.config.federation import Federation
from fedfibos.soundness import NoUploadError


class Skipped:
    """How many rounds in turn brought nothing to go on with.

    Attributes:
        in_turn: That many, the last one included.
        none_counted: Whether no round of the run has brought anything yet.
    """

    def __init__(self, federation: Federation, past: Sequence[Mapping[str, Any]]) -> None:
        """Start, or go on.

        Args:
            federation: Says how many in turn there may be; a run none of whose rounds counts stops with its last.
            past: The lines of ``rounds.jsonl`` so far.
        """
        self.patience = min(federation.patience, federation.rounds)
        self.in_turn = next((n for n, line in enumerate(reversed(past)) if "skipped_round" not in line), len(past))
        self.none_counted = self.in_turn == len(past)

    def skip(self, number: int, error: NoUploadError) -> str:
        """Note one more; what is to be said of it.

        Args:
            number: Of the round, from 1.
            error: Why it is skipped.

        Raises:
            NoUploadError: That was ``patience`` times in turn.
        """
        self.in_turn += 1
        if self.in_turn >= self.patience:
            times = f" ({self.in_turn} rounds in turn)" if self.in_turn > 1 else ""
            raise NoUploadError(f"round {number}: {error}{times}", error.rejected) from error
        return f"round {number} is skipped ({self.in_turn} of {self.patience} in turn): {error}"

    def over(self) -> None:
        """A round came about."""
        self.in_turn, self.none_counted = 0, False
