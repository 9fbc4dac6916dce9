"""What only an extra brings: a missing package is one line with the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ImportError):
    """A package that is not installed, and the command that installs it."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports of what an extra of the package brings.

    Args:
        name: The extra, such as ``report``.

    Raises:
        MissingExtraError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "fedfibos"):
            raise
        raise MissingExtraError(f"{missing} is not installed: pip install 'fedfibos[{name}]'", name=missing) from error
