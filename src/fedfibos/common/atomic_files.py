"""Files that are there whole or as they were before."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary name to write to; synced and renamed at the end: the file is there whole or as it was before."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileExistsError(errno.EEXIST, "is no regular file, wanted the name of a file to write", str(path))
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is there whole or as it was before."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
