"""Why a message came back with an error: for what the client did, or because it was lost on its way."""

from __future__ import annotations

from flwr.app import Error
from flwr.common.constant import ErrorCode


def failure_of(error: Error) -> str:
    """The reason, in one line; three of Flower's errors say nothing of the client's code."""
    match error.code:
        case ErrorCode.MESSAGE_UNAVAILABLE:
            return "its question expired, or the node left, before it answered"
        case ErrorCode.REPLY_MESSAGE_UNAVAILABLE:
            return "its answer expired before it was collected"
        case ErrorCode.NODE_UNAVAILABLE:
            return "it is out of reach: no sign of life came from its node"
    return f"it failed: {one_line(error.reason or f'error {error.code}')}"


def one_line(text: str) -> str:
    """A stranger's text: printable, in one line, not too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= 300 else line[:297] + "..."
