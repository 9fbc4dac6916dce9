"""Folders that are missing on the way to a file, made as long as something is written into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def made_folders(folder: Path) -> Iterator[None]:
    """Make a folder and those above it, as run directories are made; after a failure those that are empty go again."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in missing:  # innermost first
            with suppress(OSError):  # not empty: the file is there
                path.rmdir()
