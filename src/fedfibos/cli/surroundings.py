"""What surrounds every command: exit codes, an error in one line, the log, the console, where code is looked for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
WIDE = 120
"""Columns of tables where there is no terminal."""


def exit_code(error: Exception) -> int | None:
    """What an error that is one line long ends a command with; None: it is nobody's fault but the code's."""
    from fedfibos.common.validation import ExperimentError
    from fedfibos.round import NoUploadError
    from fedfibos.runs.record import RecordError
    from fedfibos.simulation import WorkerError

    if isinstance(error, ExperimentError):
        return WRONG_USAGE
    return FAILED if isinstance(error, RecordError | NoUploadError | WorkerError | ValueError | OSError) else None


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


def look_here() -> None:
    """Look for a user's own code in the current folder; last, so that no file in it stands in for a library."""
    _look_in(Path.cwd(), len(sys.path))


def look_beside(experiment: Path) -> None:
    """Look for it beside an experiment's file, or among the copies that a run directory keeps, and then here."""
    from fedfibos.runs.record import CODE

    here = str(Path.cwd())
    before = sys.path.index(here) if here in sys.path else len(sys.path)
    _look_in(experiment / CODE if experiment.is_dir() else experiment.parent, before)


def _look_in(folder: Path, position: int) -> None:
    if (name := str(folder.absolute())) not in sys.path:
        sys.path.insert(position, name)


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
