"""Encoded images made pixels: all of one size and one number of channels, or refused before any is decoded."""

from __future__ import annotations

import hashlib
import io
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedfibos.common.extras import extra
from fedfibos.data.cache import made_once

if TYPE_CHECKING:
    from PIL.Image import Image

Side = Annotated[int, Field(ge=1, le=65_536)]
Size = tuple[Side, Side]
T = TypeVar("T")
Colour = Literal["grey", "rgb"]

GREY = ("1", "L", "LA")
DEEP = ("I", "F")
"""Starts of the names of Pillow's modes of 16 or 32 bits."""

TURNED = (5, 6, 7, 8)
"""Values of the EXIF tag 274 with which height and width change places."""


def decode_pictures(
    sources: Sequence[Path | bytes], names: Sequence[str], where: str, size: Size | None, colour: Colour | None
) -> Tensor:
    """Pixels of all images, decoded once (see ``data.cache``).

    Args:
        sources: A file, or the bytes of one, an image.
        names: What messages call each.
        where: The folder or table that they are in, for messages.
        size: Height and width to bring every image to; None: they must have one size already.
        colour: ``grey`` or ``rgb``; None: grey where all of them are.

    Returns:
        uint8, shape ``(n, 1 or 3, height, width)``.

    Raises:
        ValueError: An image that cannot be read, with more than 8 bits a channel, or of another size; names the first.
    """
    with extra("data"):
        import PIL

    digest = hashlib.sha256(repr((size, colour)).encode())
    for source, name in zip(sources, names, strict=True):
        digest.update(_identity(source, name))

    def make() -> dict[str, Tensor]:
        height, width, channels = _layout(sources, names, where, size, colour)
        pixels = np.empty((len(sources), channels, height, width), dtype=np.uint8)
        for row, (source, name) in enumerate(zip(sources, names, strict=True)):
            pixels[row] = _reading(source, name, lambda image: _pixels(image, height, width, channels))
        return {"pixels": torch.from_numpy(pixels)}

    key = f"{digest.hexdigest()[:32]}-pillow-{PIL.__version__}"
    return made_once(key, make, f"decoding {len(sources):,} images of {where}")["pixels"]


def _identity(source: Path | bytes, name: str) -> bytes:
    """What tells one state of an image from another: its bytes, or its file's name, size and time of change."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).digest()
    try:
        seen = source.stat()
    except OSError as error:
        raise ValueError(f"{name}: cannot be read: {error.strerror}") from None
    return f"{name}\0{source.absolute()}\0{seen.st_size}\0{seen.st_mtime_ns}\0".encode(errors="surrogateescape")


def _layout(
    sources: Sequence[Path | bytes], names: Sequence[str], where: str, size: Size | None, colour: Colour | None
) -> tuple[int, int, int]:
    """Height, width and channels of all images, of their heads alone."""
    heads = [_reading(source, name, lambda image: _head(image)) for source, name in zip(sources, names, strict=True)]
    for (mode, _), name in zip(heads, names, strict=True):
        if mode.startswith(DEEP):
            raise ValueError(f"{name}: must have 8 bits a channel, got more (mode {mode})")
    sizes = Counter(seen for _, seen in heads)
    if size is None and len(sizes) > 1:
        usual = sizes.most_common(1)[0][0]
        other = next(position for position, (_, seen) in enumerate(heads) if seen != usual)
        found = heads[other][1]
        raise ValueError(
            f"{where}: images must have one size, got {len(sizes)}: mostly {usual[0]}x{usual[1]}, {names[other]} is "
            f"{found[0]}x{found[1]} (height x width); data.options.size = [{usual[0]}, {usual[1]}] scales them"
        )
    grey = colour == "grey" or (colour is None and all(mode in GREY for mode, _ in heads))
    return *(size or heads[0][1]), 1 if grey else 3


def _head(image: Image) -> tuple[str, tuple[int, int]]:
    """Mode, and height and width as it is looked at: cameras note how they were held."""
    turned = image.getexif().get(274) in TURNED
    return image.mode, (image.width, image.height) if turned else (image.height, image.width)


def _pixels(image: Image, height: int, width: int, channels: int) -> np.ndarray:
    from PIL import Image as pillow
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if "transparency" in image.info:
        image = image.convert("RGBA")
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), pillow.Resampling.BILINEAR)
    return np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)


def _reading(source: Path | bytes, name: str, read: Callable[[Image], T]) -> T:
    from PIL import Image as pillow

    try:
        with pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return read(image)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, pillow.DecompressionBombError) as error:
        text = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ValueError(f"{name}: must be an image that can be read ({text})") from error
