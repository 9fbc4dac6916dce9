"""Masks within their capacity."""

from __future__ import annotations

import pytest
import torch
from wire_cases import LAYOUT, D, submodel_of

from fedfibos.submodel import Mask, budget
from fedfibos.wire.coding import (
    decode_mask,
    encode_mask,
)
from fedfibos.wire.payload import WireError


@pytest.mark.parametrize("capacity", [1.0, 0.5, 0.0625])
def test_mask_round_trip(capacity):
    mask = submodel_of("mask", capacity)
    got = decode_mask(encode_mask(7, 3, mask, LAYOUT), 7, 3, budget(capacity, D), LAYOUT)
    assert got.num_held == mask.num_held
    assert (mask.held is None and got.held is None) or torch.equal(got.held, mask.held)


def test_a_mask_beyond_its_capacity_is_refused():
    payload = encode_mask(7, 3, submodel_of("mask", 0.5), LAYOUT)
    with pytest.raises(WireError, match=f"must hold 1 to {budget(0.25, D)} coordinates, got {budget(0.5, D)}"):
        decode_mask(payload, 7, 3, budget(0.25, D), LAYOUT)
    nothing = torch.ones(LAYOUT.size, dtype=torch.bool)
    nothing[:D] = False
    with pytest.raises(WireError, match="got 0"):
        decode_mask(encode_mask(7, 3, Mask(nothing, 0), LAYOUT), 7, 3, D, LAYOUT)
