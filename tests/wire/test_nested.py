"""The smaller members of a family, as bytes."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos.channels.family import slice_within
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.submodel import Mask, full
from fedfibos.wire.nested import pack_nested, unpack_nested
from fedfibos.wire.payload import Reader, WireError

MODEL = model_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), example=torch.zeros(2, 3))


def mask(count):
    return Mask(torch.arange(MODEL.layout.size) < count, count)


def test_masks_come_back():
    family = replace(mask(20), nested=(mask(9), mask(4)))
    reader = Reader(pack_nested(family, MODEL))
    again = unpack_nested(reader, mask(20), MODEL)
    reader.end()
    assert [torch.equal(a.held, b.held) for a, b in zip(again.nested, family.nested, strict=True)] == [True, True]
    assert [member.num_held for member in again.nested] == [9, 4]


def test_slices_come_back():
    outer = prefix(MODEL, 0.8)
    inner = slice_within(outer, torch.tensor([0, 2]), MODEL.axes, MODEL.layout)
    (member,) = unpack_nested(Reader(pack_nested(replace(outer, nested=(inner,)), MODEL)), outer, MODEL).nested
    assert member.widths == inner.widths == (("0", 2),)
    assert torch.equal(member.index, inner.index)


def test_what_is_no_family_is_refused():
    with pytest.raises(WireError, match=r"a family must have at most .* smaller members, got 255"):
        unpack_nested(Reader(b"\xff"), full(MODEL.layout), MODEL)
    masks = pack_nested(replace(mask(20), nested=(mask(9),)), MODEL)
    with pytest.raises(WireError, match="a slice's family must be of slices, got a mask in it"):
        unpack_nested(Reader(masks), prefix(MODEL, 0.8), MODEL)
