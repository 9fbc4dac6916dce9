"""A server app that ends in one line: what this library raises is an explanation, and needs no stack around it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfibos.round import NoUploadError
from fedfibos.runs.reading import RecordError

LOG = logging.getLogger("flwr")
EXPLAINED = (ValueError, NoUploadError, RecordError)
HERE = str(Path(__file__).parent.parent)

_WORDS = {
    ", --overwrite to run it anew, or choose another --out": ", or choose another run-dir",
    ", or pass --overwrite to run anew": "",
    "pass --resume": "add resume=true to the run configuration",
    "another --out": "another run-dir",
}
"""What a record says of the command line's options -> of a fleet's run configuration."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """What this library raises inside is logged by Flower without its stack; what others raise, with it.

    A record speaks of the command line's options: of a fleet's, their names in the run configuration are told.
    """
    if not any(isinstance(known, _WithoutStack) for known in LOG.filters):
        LOG.addFilter(_WithoutStack())
    try:
        yield
    except RecordError as error:
        text = str(error)
        for option, key in _WORDS.items():
            text = text.replace(option, key)
        error.args = (text, *error.args[1:])
        raise


class _WithoutStack(logging.Filter):
    """Flower logs that the app raised an exception, and the stack below it."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, EXPLAINED) and _ours(error):
            record.msg, record.args, record.exc_info = "the run ends: %s", (" ".join(str(error).split()),), None
        return True


def _ours(error: BaseException) -> bool:
    """Whether it was raised in this library, not in a user's code or another library's."""
    stack = traceback.extract_tb(error.__traceback__)
    return bool(stack) and stack[-1].filename.startswith(HERE)
