"""Files and folders that are on the disk when a function returns, and their digests."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def remove(path: Path) -> None:
    """Remove a folder, or the file that stands in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_tensors(tensors: dict[str, Tensor], path: Path) -> str:
    """Write tensors, sync, return the file's SHA-256."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"the checkpoint could not be written, the one before it is kept: {error}") from error
    sync_file(path)
    return sha256_of(path)


def sync_file(path: Path) -> None:
    """Have a file's content on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_write(path: Path, content: bytes) -> None:
    """Write a file and have it on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Have a folder's entries on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
