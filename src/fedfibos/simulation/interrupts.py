"""Ctrl-C and SIGTERM: the round is finished first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """Ctrl-C or SIGTERM: the round was finished and a checkpoint written."""

    def __init__(self, finished_rounds: int) -> None:
        super().__init__(f"interrupted after round {finished_rounds}")
        self.finished_rounds = finished_rounds


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
