"""Fashion-MNIST: 70,000 grey images of clothes, 28x28 pixels, in IDX files.

H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, arXiv:1708.07747. The IDX format: a big-endian magic
number (0, 0, 8 for unsigned bytes, number of dimensions), each dimension's size, then the bytes.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfibos.data.images import ImageData
from fedfibos.data.split import Split, checked_images

FOLDERS = ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw")
"""Names of its folder inside a data folder; MNIST's files have the same names, so it needs its own."""

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the files."""

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

WANTED = (
    f"put {', '.join(f'{name}.gz' for name in FILES)} into {FOLDERS[0]}/ of the data folder, "
    "or install Debian's package dataset-fashion-mnist"
)

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def find(data_dir: Path | None) -> Path | None:
    """The first folder with any of the four files, in the data folder or where Debian puts them."""
    folders = [data_dir / name for name in FOLDERS] if data_dir is not None else []
    for folder in (*folders, DEBIAN):
        if any(path.is_file() for name in FILES for path in (folder / name, folder / f"{name}.gz")):
            return folder
    return None


def read(folder: Path, rows: tuple[int, int] = (60_000, 10_000)) -> Split:
    """Read the four IDX files, plain or gzip-compressed.

    Args:
        folder: Where they are.
        rows: Training and test images there must be.

    Raises:
        FileNotFoundError: One of the four is missing.
        ValueError: A file that is damaged, truncated or of another shape.
    """
    halves = []
    for n, images_name, labels_name in zip(rows, FILES[::2], FILES[1::2], strict=True):
        images_file, labels_file = _plain_or_gz(folder, images_name), _plain_or_gz(folder, labels_name)
        images, labels = read_idx(images_file, (n, 28, 28)), read_idx(labels_file, (n,))
        pixels, classes = checked_images(images[:, None], labels, (n, 1, 28, 28), len(CLASSES), labels_file)
        halves.append(ImageData(pixels, classes, mean=(0.2860,), std=(0.3530,)))
    return Split(halves[0], halves[1], CLASSES, "fashion_mnist")


def _plain_or_gz(folder: Path, name: str) -> Path:
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
