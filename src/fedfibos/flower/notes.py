"""What clients are told with their next message: that their work of an earlier round was not used, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Notes:
    """A line for each client whose last work was not used, until it is given; a run that goes on knows it again."""

    def __init__(self, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """Know what happened so far.

        Args:
            lines: Of ``rounds.jsonl``.
        """
        self._notes: dict[int, str] = {}
        for line in lines:
            for tried in (*line.get("skipped", ()), line):
                unused = {**tried["rejected"], **tried.get("dropped", {})}
                self.note(line["round"], tried["participants"], {int(client): why for client, why in unused.items()})

    def note(self, number: int, participants: Iterable[int], unused: Mapping[int, str]) -> None:
        """A round is over.

        Args:
            number: Of the round, from 1.
            participants: Those whose uploads counted or were rejected.
            unused: Client -> why its work was not used.
        """
        for client in participants:
            self._notes.pop(client, None)
        for client, why in unused.items():
            self._notes[client] = f"this device's work of round {number} was not used: {why}"

    def give(self, client: int) -> str | None:
        """The client's note, which it is then done with."""
        return self._notes.pop(client, None)
