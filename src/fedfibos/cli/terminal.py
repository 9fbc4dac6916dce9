"""Standard output and standard error: the console, warnings, errors in one line, the library's log."""

from __future__ import annotations

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


def console_here() -> Console:
    """Standard output; into a file or a pipe, which have no width, tables may be wider than 80 columns."""
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if narrow else Console(width=WIDE)


def warn(text: str) -> None:
    """A warning, one line on standard error."""
    print(f"warning: {text}", file=sys.stderr)


def fail(message: str, code: int) -> int:
    """One line on standard error."""
    print("fedfibos: " + " ".join(message.split()), file=sys.stderr)
    return code
