"""Standard output and standard error: the console, warnings, errors in one line, the library's log."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

WIDE = 120
"""Columns of tables where there is no terminal."""


class _StderrLines(logging.Handler):
    """Looks standard error up at every line: a live bar redirects it above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


@contextmanager
def log_on_stderr() -> Iterator[None]:
    """What the library logs, as lines on standard error; other libraries' logs are left as they are."""
    log, handler = logging.getLogger("fedfibos"), _StderrLines()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _Console(Console):
    """A console that leaves it to the command line what a reader that is gone means."""

    def on_broken_pipe(self) -> None:
        """Raise it again: Rich would end the program with exit code 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console_here() -> Console:
    """Standard output; into a file or a pipe, which have no width, tables may be wider than 80 columns."""
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return _Console() if narrow else _Console(width=WIDE)


def flush_output() -> None:
    """Write what is left, now that a reader who is gone can still be answered."""
    sys.stdout.flush()


def drop_output() -> None:
    """Send what is left nowhere: Python would complain of it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def warn(text: str) -> None:
    """A warning, one line on standard error."""
    print(f"warning: {text}", file=sys.stderr)


def fail(message: str, code: int) -> int:
    """One line on standard error."""
    try:
        print("fedfibos: " + " ".join(message.split()), file=sys.stderr)
    except BrokenPipeError:  # nobody reads it
        drop_output()
    return code
