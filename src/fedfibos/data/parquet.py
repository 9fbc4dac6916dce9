"""Images in a parquet file: one encoded image (JPEG or PNG) and one label a row."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch

from fedfibos.common.extras import extra
from fedfibos.data.cache import Tensors, decoded_once

with extra("data"):
    import PIL
    import pyarrow
    from PIL import Image
    from pyarrow import parquet


def read_parquet_images(file: Path, num_rows: int, shape: tuple[int, int, int]) -> tuple[Tensors, tuple[str, ...]]:
    """Read columns ``image`` (encoded bytes) and ``label``, decoding the images once (see ``cache``).

    Args:
        file: The parquet file; the class names are in its schema's metadata, key ``classes``, with
            commas between them.
        num_rows: Rows there must be.
        shape: (channels, height, width) that every image must have.

    Returns:
        ``images`` (uint8, shape ``(n, *shape)``) and ``labels`` (int64), and the class names.

    Raises:
        FileNotFoundError: No such file.
        ValueError: Not a parquet file, other columns, another number of rows, or an image that cannot
            be decoded or has another shape; names the first such row.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing")
    try:
        with parquet.ParquetFile(file) as table:
            schema, got = table.schema_arrow, table.metadata.num_rows
    except pyarrow.ArrowException as error:
        raise ValueError(f"{file}: must be a parquet file, damaged or truncated ({_line(error)})") from error
    if missing := [name for name in ("image", "label") if name not in schema.names]:
        raise ValueError(
            f"{file}: must have the columns image and label, got {', '.join(schema.names)} without {missing[0]}"
        )
    if not pyarrow.types.is_integer(schema.field("label").type):
        raise ValueError(f"{file}: column label must hold integers, got {schema.field('label').type}")
    if got != num_rows:
        raise ValueError(f"{file}: must have {num_rows} rows, got {got}")
    names = (schema.metadata or {}).get(b"classes", b"").decode()
    if not names:
        raise ValueError(f"{file}: its schema's metadata must have the class names under the key classes")
    return decoded_once(file, lambda path: _decode(path, shape), f"pillow-{PIL.__version__}"), tuple(names.split(","))


def _decode(file: Path, shape: tuple[int, int, int]) -> Tensors:
    try:
        table = parquet.read_table(file, columns=["image", "label"])
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file}: damaged or truncated parquet file ({_line(error)})") from error
    labels = table["label"]
    if labels.null_count:
        raise ValueError(f"{file}: column label must have no gaps, got {labels.null_count}")
    images = np.empty((table.num_rows, *shape), dtype=np.uint8)
    for row, cell in enumerate(table["image"]):
        images[row] = _decode_image(cell.as_py(), shape, f"{file}: image in row {row}")
    return {
        "images": torch.from_numpy(images),
        "labels": torch.from_numpy(labels.to_numpy().astype(np.int64)),
    }


def _decode_image(encoded: object, shape: tuple[int, int, int], where: str) -> np.ndarray:
    channels, height, width = shape
    mode = "RGB" if channels == 3 else "L"
    if not isinstance(encoded, bytes):
        raise ValueError(f"{where} must be bytes, got {type(encoded).__name__}")
    try:
        with Image.open(io.BytesIO(encoded), formats=("JPEG", "PNG")) as image:
            if (image.mode, image.size) != (mode, (width, height)):
                raise ValueError(
                    f"{where} must be {mode} of {width}x{height}, got {image.mode} of {image.width}x{image.height}"
                )
            pixels = np.asarray(image)
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{where} must be a JPEG or PNG image ({error})") from error
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
