"""IDX files of unsigned bytes, plain or gzip-compressed.

The format: a big-endian magic number (0, 0, 8 for unsigned bytes, number of dimensions), each dimension's size, then
the bytes.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def plain_or_gz(folder: Path, name: str) -> Path:
    """The file of that name in the folder, or else the one with ``.gz``.

    Raises:
        FileNotFoundError: Neither is there.
    """
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder / name}.gz is missing (or the same without .gz)")


def read_idx(file: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes that must have that shape.

    Raises:
        ValueError: Not an IDX file of bytes, another shape, or fewer or more bytes than it says.
    """
    header_size = 4 + 4 * len(shape)
    wanted = header_size + math.prod(shape)
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read(wanted + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file}: damaged or truncated gzip file ({error})") from error
    if content[:4] != bytes((0, 0, 8, len(shape))):
        raise ValueError(
            f"{file}: must be an IDX file of unsigned bytes with {len(shape)} dimensions "
            f"(magic number 00 00 08 {len(shape):02x}), got {content[:4].hex(' ') or 'an empty file'}"
        )
    got = tuple(int.from_bytes(content[i : i + 4], "big") for i in range(4, header_size, 4))
    if len(content) >= header_size and got != shape:
        raise ValueError(f"{file}: must have shape {shape}, got {got}")
    if len(content) != wanted:
        size = f"{len(content)} bytes" if len(content) < wanted else f"more than {wanted} bytes"
        raise ValueError(f"{file}: must have {wanted} bytes uncompressed, got {size}")
    return np.frombuffer(content, dtype=np.uint8, offset=header_size).reshape(shape).copy()
