"""A client app that ends by itself: what a device does for one message may take so long and no longer.

Flower starts a process for every message and waits for it without end. A ``data()`` that hangs would take its device
out for good, in this run and in those after it.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from fedfibos.common.user_code import LIBRARIES

HERE = str(Path(__file__).parent.parent)
GRACE = 30.0
"""Seconds after which the process is ended from outside Python, where an exception did not end the work."""

AGAIN = 1.0
"""Seconds after which the exception is raised once more, where something caught it."""


class OverdueError(BaseException):
    """The work took too long. No ``Exception``: a user's ``except Exception`` is not to catch it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """End what is done inside, after so many seconds.

    In the main thread of a POSIX system it ends with an exception, and whoever called goes on. Where that does not come
    through (a library that does not return to Python, or a thread that is not the main one) the process ends
    :data:`GRACE` seconds later, and writes where it was.

    Raises:
        OverdueError: It was not done; the message is one line and says where it was.
    """
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=_error_stream())
    alarmed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()

    def ring(number: int, frame: FrameType | None) -> None:
        raise OverdueError(f"it was not done within {seconds:g} s: stopped {_place(frame)}")

    before = signal.signal(signal.SIGALRM, ring) if alarmed else None
    try:
        if alarmed:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        yield
    finally:
        if alarmed:
            _quiet()
            signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


def _quiet() -> None:
    """Stop the alarm, which may ring once more while it is stopped."""
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            return
        except OverdueError:
            continue


def _error_stream() -> int:
    """Where a process writes its last lines; a service may have been started without."""
    with suppress(AttributeError, OSError, ValueError):
        return sys.__stderr__.fileno()  # type: ignore[union-attr]
    return 2


def _place(frame: FrameType | None) -> str:
    """The innermost line of a user's code or of this library's: not of another that was called."""
    stack = traceback.extract_stack(frame)
    known = [one for one in stack if not one.filename.startswith((*LIBRARIES, "<")) or one.filename.startswith(HERE)]
    last = (known or stack)[-1]
    return f"in {last.name}, {Path(last.filename).name} line {last.lineno}"
