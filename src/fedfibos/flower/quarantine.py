"""Clients that fail in the same way again and again are left out for a while, each time for longer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedfibos.flower.messages import NOT_NOW

PATIENCE = 3
"""Failures in the same way, one after another, before a client is left out."""

LONGEST = 64
"""Rounds that a client is left out at most."""


@dataclass(frozen=True)
class _Failing:
    """A client whose last rounds failed alike: how often, and the first round (from 0) that it may take part in."""

    kind: str
    reason: str
    times: int
    back: int


class Quarantine:
    """Who is left out, as the record tells: a run that goes on knows it again.

    After :data:`PATIENCE` failures alike a client is left out of one round, after the next of two, then four, eight. An
    upload that counts, or another failure, begins anew.
    """

    def __init__(self, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """Know what happened so far.

        Args:
            lines: Of ``rounds.jsonl``.
        """
        self._failing: dict[int, _Failing] = {}
        for line in lines:
            for tried in (*line.get("skipped", ()), line):
                rejected = {int(client): reason for client, reason in tried["rejected"].items()}
                self.note(line["round"] - 1, tried["participants"], rejected)

    def note(self, t: int, participants: Iterable[int], rejected: Mapping[int, str]) -> list[str]:
        """Count the failures of round t; what is to be said of them, in a line each."""
        said = []
        for client in participants:
            if client not in rejected:
                self._failing.pop(client, None)
                continue
            reason = rejected[client]
            if NOT_NOW in reason:  # it said so itself
                continue
            before, kind = self._failing.get(client), _kind(reason)
            times = before.times + 1 if before is not None and before.kind == kind else 1
            away = min(2 ** (times - PATIENCE), LONGEST) if times >= PATIENCE else 0
            self._failing[client] = _Failing(kind, reason, times, t + 1 + away)
            if away:
                said.append(f"client {client} is left out {self._why(self._failing[client])}")
        return said

    def out(self, t: int) -> dict[int, str]:
        """Client -> why it is left out of round t."""
        return {
            client: self._why(failing)
            for client, failing in sorted(self._failing.items())
            if failing.times >= PATIENCE and t < failing.back
        }

    @staticmethod
    def _why(failing: _Failing) -> str:
        return f"until round {failing.back}: it failed {failing.times} times in the same way: {failing.reason}"


def _kind(reason: str) -> str:
    """The reason without its numbers."""
    return re.sub(r"[-+]?\d[\d.]*(e[-+]?\d+)?|\b(nan|inf)\b", "#", reason)
