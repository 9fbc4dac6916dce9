"""Ctrl-C and SIGTERM: the round is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedfibos.common.formatting import count_of


class Interrupted(Exception):
    """Ctrl-C or SIGTERM, or a hook's wish: the round was finished and a checkpoint written; ``resume`` goes on."""

    def __init__(self, finished_rounds: int, why: str = "interrupted") -> None:
        super().__init__(f"{why} after round {finished_rounds}")
        self.finished_rounds = finished_rounds


class Stopped(Interrupted):
    """``on_round`` gave :data:`STOP`, or raised StopIteration."""

    def __init__(self, finished_rounds: int) -> None:
        super().__init__(finished_rounds, "stopped by on_round")


class StudyInterrupted(Interrupted):
    """Ctrl-C or SIGTERM while several runs of a study were under way; each wrote a checkpoint."""

    def __init__(self, runs: int) -> None:
        super().__init__(0)
        self.runs = runs

    def __str__(self) -> str:
        """In one line."""
        return f"interrupted; {count_of(self.runs, 'run')} under way finished a round and wrote a checkpoint"


STOP = "stop"
"""What ``on_round`` gives to end a run after that round."""

OnRound = Callable[[dict[str, Any]], object]
"""Called with a line of ``rounds.jsonl``."""


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Turn Ctrl-C or SIGTERM into an event that the loop looks at between rounds; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def note(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
