"""The smaller members of a nested family, in few bytes.

Each member is said inside the one before it: a bit for every ranked coordinate that a mask still holds, or for every
channel that a slice still keeps. So a coordinate costs at most as many bits as there are members that hold it, and
fewer after compression.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import torch

from fedfibos.channels.family import slice_within
from fedfibos.model import Model
from fedfibos.params import Layout
from fedfibos.submodel import Mask, Slice, Submodel, full
from fedfibos.training import MOST_LEVELS
from fedfibos.wire.bitmap import Bits, pack_bits, pack_mask, unpack_bits, unpack_mask
from fedfibos.wire.payload import Reader, WireError


def most_bytes(layout: Layout) -> int:
    """What the members of a family take at most."""
    return MOST_LEVELS * (layout.num_maskable // 4 + 1024)


def pack_nested(submodel: Submodel, model: Model) -> bytes:
    """The smaller members of a submodel's family."""
    parts = [struct.pack("<B", len(submodel.nested))]
    last = _ranked(submodel, model.layout)
    for member in submodel.nested:
        parts.append(struct.pack("<B", member.units is not None))
        if member.units is not None:
            kept = np.zeros(member.num_units, dtype=np.bool_)
            kept[member.units.cpu().numpy()] = True
            parts.append(pack_bits(kept))
        else:
            held = _ranked(member, model.layout)
            parts.append(pack_mask(held[last]))
            last = held
    return b"".join(parts)


def unpack_nested(reader: Reader, submodel: Submodel, model: Model) -> Submodel:
    """The submodel with the members at the front of a payload.

    Raises:
        WireError: They are not there, or do not lie inside it.
    """
    (count,) = reader.unpack("<B")
    if count > MOST_LEVELS:
        raise WireError(f"a family must have at most {MOST_LEVELS} smaller members, got {count}")
    members: list[Submodel] = []
    last = _ranked(submodel, model.layout) if count else np.zeros(0, dtype=np.bool_)
    for _ in range(count):
        (is_slice,) = reader.unpack("<B")
        if is_slice:
            members.append(_slice_of(reader, submodel, model))
            continue
        if submodel.widths is not None:
            raise WireError("a slice's family must be of slices, got a mask in it")
        inner = np.zeros_like(last)
        inner[last] = unpack_mask(reader, int(last.sum()))
        last = inner
        members.append(_mask_of(inner, model.layout))
    return replace(submodel, nested=tuple(members))


def _ranked(submodel: Submodel, layout: Layout) -> Bits:
    """Which maskable coordinates a mask holds."""
    if submodel.widths is not None:
        return np.zeros(0, dtype=np.bool_)
    if submodel.held is None:
        return np.ones(layout.num_maskable, dtype=np.bool_)
    bits: Bits = submodel.held[: layout.num_maskable].cpu().numpy()
    return bits


def _mask_of(bits: Bits, layout: Layout) -> Mask:
    held = torch.ones(layout.size, dtype=torch.bool)
    held[: layout.num_maskable] = torch.from_numpy(bits)
    count = int(held.sum())
    return full(layout) if count == layout.size else Mask(held, count)


def _slice_of(reader: Reader, submodel: Submodel, model: Model) -> Slice:
    widths = {**model.axes.sizes, **dict(submodel.widths or ())}
    bits = torch.from_numpy(unpack_bits(reader, sum(widths.values())))
    if not all(bool(kept.any()) for kept in bits.split(list(widths.values()))):
        raise WireError("a family's slice must keep a channel of every axis")
    return slice_within(submodel, bits.nonzero()[:, 0], model.axes, model.layout)
