"""The loop over a fleet's rounds: ask, collect the answers until enough count or the time is over, merge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

POLL = 1.0
"""Seconds between two looks for answers."""


class Rounds(Protocol):
    """What a round is made of, before and after its answers."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages to the clients."""

    def enough(self, replies: list[Message]) -> bool:
        """Whether the round needs no more answers than it has with these, the last that came."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next parameters; None where the answers are no round."""


def run_rounds(rounds: Rounds, grid: Grid, arrays: ArrayRecord, number: int, seconds: float) -> ArrayRecord:
    """Parameters after that many rounds; a round that is tried again counts as one.

    Args:
        rounds: Says what is asked, when there is enough, and what is made of it.
        grid: Flower's.
        arrays: Parameters before.
        number: How many.
        seconds: That clients have for an answer.
    """
    for one in range(1, number + 1):
        messages = rounds.configure_train(one, arrays, ConfigRecord(), grid)
        merged, _ = rounds.aggregate_train(one, collect(grid, messages, seconds, rounds.enough))
        arrays = arrays if merged is None else merged
    return arrays


def collect(
    grid: Grid,
    messages: Iterable[Message],
    seconds: float,
    enough: Callable[[list[Message]], bool] = lambda replies: False,
) -> list[Message]:
    """Send messages and return the answers that have come once all have, there is enough, or the time is over.

    Args:
        grid: Flower's.
        messages: Sent one at a time: of a generator no two are in memory at once.
        seconds: To wait for the answers, from when all are sent.
        enough: Called with the answers that have come since the last call; whether the others may be left.
    """
    waiting = {sent for message in messages for sent in grid.push_messages([message]) if sent is not None}
    end, found = time.monotonic() + seconds, list[Message]()
    while waiting:
        new = list(grid.pull_messages(waiting))
        waiting -= {reply.metadata.reply_to_message_id for reply in new}
        found += new
        if enough(new) or (left := end - time.monotonic()) <= 0:
            break
        if waiting:
            time.sleep(min(POLL, left))
    return found
