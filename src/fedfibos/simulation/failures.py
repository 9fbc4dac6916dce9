"""One line for whatever stops a client's training, in whichever process it trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedfibos.common.user_code import describe_error, users_frame
from fedfibos.types import Client


class WorkerError(RuntimeError):
    """Training or evaluating a client failed, here or in a worker process; or such a process ended."""


@contextmanager
def failing_alike(client: Client | None) -> Iterator[None]:
    """Whatever stops a client's training (evaluation: None), a line about it: the same here and in a worker process.

    Raises:
        WorkerError: The line.
        ValueError: What the library itself refuses.
    """
    try:
        yield
    except ConnectionError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and users_frame(error) is None:
            raise  # what the library refuses, in a line already
        at = "in evaluation" if client is None else f"training client {client.id}"
        raise WorkerError(f"{describe_error(error)} ({at})") from error
