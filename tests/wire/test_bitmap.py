"""Masks as bits: what comes back is what was sent."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire_cases import PAYLOADS, D, decode, sealed

from fedfibos.wire.bitmap import pack_bits, pack_mask, unpack_bits, unpack_mask
from fedfibos.wire.payload import Reader, WireError


@given(st.lists(st.booleans(), max_size=2000), st.sampled_from([pack_mask, pack_bits]))
@example([True] + [False] * 254 + [True], pack_mask)
@example([False] * 255 + [True], pack_mask)
@example([False] * 1500 + [True], pack_mask)
@example([], pack_mask)
@settings(deadline=None)
def test_any_bits_round_trip(bits, pack):
    held = np.array(bits, dtype=np.bool_)
    reader = Reader(pack(held))
    got = unpack_mask(reader, held.size) if pack is pack_mask else unpack_bits(reader, held.size)
    reader.end()
    assert (got == held).all()


@given(st.integers(1, 5000), st.floats(0, 0.5), st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_sparse_masks_round_trip(size, density, seed):
    held = np.random.default_rng(seed).random(size) < density
    assert (unpack_mask(Reader(pack_mask(held)), size) == held).all()


def test_a_bomb_is_not_unpacked():
    """Compressed data that claim, or would give, more than a mask's size are refused before they are unpacked."""
    bomb = zstandard.compress(bytes(10**8))
    head = PAYLOADS["mask"][:26]
    for encoding in (0, 1):
        payload = sealed(head + struct.pack("<BII", encoding, D, len(bomb)) + bomb)
        with pytest.raises(WireError, match="at most"):
            decode("mask", payload)
