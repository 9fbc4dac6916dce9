"""A server's log as JSON lines, for programs that read it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One object a line: ``time``, ``level``, ``text``."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said = {"time": time, "level": record.levelname.lower(), "text": " ".join(record.getMessage().split())}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


@contextmanager
def json_lines(log: logging.Logger, wanted: bool) -> Iterator[None]:
    """Have every handler of a logger write JSON lines, while a run goes on; nothing changes where it is not wanted."""
    before = [(handler, handler.formatter) for handler in log.handlers] if wanted else []
    for handler, _ in before:
        handler.setFormatter(JsonLines())
    try:
        yield
    finally:
        for handler, formatter in before:
            handler.setFormatter(formatter)
