"""A round that asks more clients than it needs: the first usable uploads count, and the others are dropped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from fedfibos.common.formatting import count_of

LOG = logging.getLogger("flwr")

Fault = Callable[[int, Message], str | None]
"""(client, its answer) -> why it is no upload that can be averaged; None where it is one."""


@dataclass
class Draw:
    """Whose uploads count in the round that is open.

    Answers that come in one look are taken in the order of client ids, so the record says who counted, and who counted
    gives the parameters.

    Attributes:
        wanted: Usable uploads that the round needs.
        asked: Message -> the client that it went to.
        fault: Tells usable uploads from others.
        counted: Clients whose uploads count.
        rejected: Client -> why its upload can't be used.
        dropped: Client -> why its work is not used, though nothing is wrong with it.
    """

    wanted: int
    asked: Mapping[str, int]
    fault: Fault
    counted: set[int] = field(default_factory=set)
    rejected: dict[int, str] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)

    def enough(self, replies: Iterable[Message]) -> bool:
        """Take the answers that have come; whether the round has all it needs."""
        answers: dict[int, list[Message]] = {}
        for reply in replies:
            if (client := self.asked.get(reply.metadata.reply_to_message_id)) is not None:
                answers.setdefault(client, []).append(reply)
        if len(self.asked) <= self.wanted:
            return False  # all are needed
        uploads = count_of(self.wanted, "upload")
        for client in sorted(answers):
            if len(self.counted) == self.wanted:
                self.dropped[client] = f"{uploads} had counted before its own came"
            elif len(answers[client]) > 1:
                self.rejected[client] = f"it answered {len(answers[client])} times"
            elif (reason := self.fault(client, answers[client][0])) is not None:
                self.rejected[client] = reason
            else:
                self.counted.add(client)
        if len(self.counted) < self.wanted:
            return False
        silent = set(self.asked.values()) - self.counted - self.rejected.keys() - self.dropped.keys()
        self.dropped |= dict.fromkeys(sorted(silent), f"it had not answered when {uploads} had counted")
        return True


@dataclass(frozen=True)
class _Open:
    """A message whose round went on without its answer."""

    client: int
    number: int
    until: float


class Unanswered:
    """Messages whose rounds went on without an answer: their clients are at work, and their answers count no more.

    A device works on one message after another. One that is still at an earlier round would be late in this one too.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self.late: dict[int, str] = {}
        """Client -> what came of it after its round, since the last round was recorded."""

    def leave(self, messages: Mapping[str, int], number: int, until: float) -> None:
        """A round is over.

        Args:
            messages: Message -> client, of those that were not answered.
            number: Of the round, from 1.
            until: When each client ends its work by itself (``time.monotonic``).
        """
        self._open |= {message: _Open(client, number, until) for message, client in messages.items()}

    def look(self, grid: Grid) -> None:
        """Take what has come of them, and forget it: nothing of it is used, nor kept by Flower."""
        if not self._open:
            return
        for reply in grid.pull_messages(set(self._open)):
            of = self._open.pop(reply.metadata.reply_to_message_id, None)
            if of is not None and not reply.has_error():  # the device itself has answered
                self.late[of.client] = f"its answer to round {of.number} came when that round was over: not used"
                LOG.warning("client %d: %s", of.client, self.late[of.client])

    def at_work(self) -> dict[int, str]:
        """Client -> what it is still at, as far as is known."""
        now = time.monotonic()
        return {of.client: f"still at work on round {of.number}" for of in self._open.values() if now < of.until}

    def over(self) -> dict[int, str]:
        """A round is recorded: what came late before it, and nothing of the next."""
        late, self.late = self.late, {}
        return late
