"""Which coordinates are held, in few bytes.

A mask is written as packed bits, or as the gaps between held coordinates, whichever is smaller after compression: bits
are near the entropy bound from a density of a quarter upwards, gaps below.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import zstandard

from fedfibos.wire.payload import Reader, WireError

Bits = np.ndarray[Any, np.dtype[np.bool_]]
"""One bool a coordinate."""

LEVEL = 3
PACKED, GAPS = 0, 1
ESCAPE = 255
SPARSE = 0.4
"""Density up to which gaps are tried: above, they never win."""

_FIELDS = "<BII"  # encoding, number of bytes (packed) or of held coordinates (gaps), compressed size


def pack_mask(held: Bits) -> bytes:
    """A mask, shape ``(d,)``, as bytes."""
    packed = np.packbits(held).tobytes()
    count = int(held.sum())
    best = PACKED, len(packed), zstandard.compress(packed, LEVEL)
    if count <= SPARSE * held.size:
        gaps = zstandard.compress(_gaps(np.flatnonzero(held)), LEVEL)
        best = min(best, (GAPS, count, gaps), key=lambda entry: len(entry[2]))
    return struct.pack(_FIELDS, best[0], best[1], len(best[2])) + best[2]


def unpack_mask(reader: Reader, size: int) -> Bits:
    """The mask over ``size`` coordinates at the front of a payload.

    Raises:
        WireError: There is none.
    """
    encoding, count, compressed = reader.unpack(_FIELDS)
    data = reader.take(compressed)
    if encoding == PACKED:
        return _unpacked(_decompressed(data, -(-size // 8)), size)
    if encoding != GAPS or count > size:
        raise WireError(f"a mask must be bits or at most {size} gaps, got encoding {encoding} with {count}")
    held = np.zeros(size, dtype=np.bool_)
    held[_positions(_decompressed(data, count + size // ESCAPE), count, size)] = True
    return held


def pack_bits(held: Bits) -> bytes:
    """Bits of a number that the reader knows, compressed."""
    data = zstandard.compress(np.packbits(held).tobytes(), LEVEL)
    return struct.pack("<I", len(data)) + data


def unpack_bits(reader: Reader, size: int) -> Bits:
    """``size`` bits at the front of a payload.

    Raises:
        WireError: They are not there.
    """
    (compressed,) = reader.unpack("<I")
    return _unpacked(_decompressed(reader.take(compressed), -(-size // 8)), size)


def _gaps(positions: np.ndarray[Any, np.dtype[np.int64]]) -> bytes:
    """Coordinates skipped before each held one; a byte, behind one of 255 for each 255 of them."""
    gaps = np.diff(positions, prepend=-1) - 1
    whole, rest = gaps // ESCAPE, gaps % ESCAPE
    ends = np.cumsum(whole + 1)
    out = np.full(int(ends[-1]) if ends.size else 0, ESCAPE, dtype=np.uint8)
    out[ends - 1] = rest
    return out.tobytes()


def _positions(data: bytes, count: int, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Inverse of :func:`_gaps`."""
    skips = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
    is_held = skips < ESCAPE
    if int(is_held.sum()) != count or (skips.size and not is_held[-1]):
        raise WireError(f"a mask must have {count} gaps, got {int(is_held.sum())}")
    positions = (np.cumsum(skips) + np.cumsum(is_held))[is_held] - 1
    if count and positions[-1] >= size:
        raise WireError(f"a mask must lie within {size} coordinates, got one at {positions[-1]}")
    return positions


def _unpacked(data: bytes, size: int) -> Bits:
    if len(data) != -(-size // 8):
        raise WireError(f"{size} bits must take {-(-size // 8)} bytes, got {len(data)}")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if bits[size:].any():
        raise WireError(f"the bits behind the last of {size} must be 0")
    return bits[:size].astype(np.bool_)


def _decompressed(data: memoryview, most: int) -> bytes:
    """At most ``most`` bytes: checked before anything is allocated."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= most:
            raise WireError(f"compressed data must hold at most {most} bytes, got {size}")
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(f"compressed data are damaged: {error}") from None
