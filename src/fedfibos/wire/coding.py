"""What server and clients send each other, as bytes: only the submodel travels.

Down: the submodel and its values; with SCAFFOLD as many values again, the correction of its steps. A mask goes as a
compressed bitmap of the d maskable coordinates (or as compressed gaps between held ones, whichever is smaller) and the
values of the held coordinates, densely. A slice goes as the widths of its axes: the client trains the small tensors and
need not know which channels they are. Up: the update on the held coordinates, and a statistic where the method asks for
one. The submodel is not sent back: an upload names the download that it answers.

Every payload is versioned, of bounded size and checksummed (against damage, not against forgery: that is what TLS and
client keys are for). Decoding reads fixed-size fields and arrays of known length, executes nothing, and raises
:class:`WireError`, in one line, for whatever is not exactly as expected.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedfibos.backend.reductions import extremes
from fedfibos.model import Model
from fedfibos.params import Layout, Params
from fedfibos.submodel import Mask, Slice, Submodel, full
from fedfibos.types import Client, Upload
from fedfibos.wire.bitmap import pack_bits, pack_mask, unpack_bits
from fedfibos.wire.envelope import Kind, header, open_payload, seal, token_of
from fedfibos.wire.nested import most_bytes, pack_nested, unpack_nested
from fedfibos.wire.payload import WireError
from fedfibos.wire.precision import Precision, decode_statistic, encode_statistic
from fedfibos.wire.submodels import (
    check_finite,
    float32_bytes,
    held_values,
    local_vector,
    maskable_bits,
    pack_widths,
    read_mask,
    read_slice,
)

_UPLOAD = struct.Struct("<16sdIBB")  # answered download, loss, steps, statistic's coverage, whether rows are left out
MAX_AXES = 0xFFFF
LARGEST = float(np.finfo(np.float32).max)


class _Shape(IntEnum):
    FULL, MASK, SLICE = 0, 1, 2


_COVERAGE: tuple[Literal["held", "all", "units"] | None, ...] = (None, "held", "all", "units")


@dataclass(frozen=True)
class Download:
    """What a client receives: the submodel to train and the parameters on it.

    Attributes:
        client: Its id.
        round: Round counter t.
        capacity: Its capacity, as the server has noted it.
        submodel: As the client sees it: of a slice, ``index`` counts local coordinates.
        params: A mask's values in the full layout, zero off the mask; a slice's in the small one.
        token: Names this very payload in the answer.
        correction: With ``local.scaffold``, of the client's steps, laid out as the parameters; else None.
    """

    client: int
    round: int
    capacity: float
    submodel: Submodel
    params: Params
    token: bytes
    correction: Tensor | None = None


def encode_download(client: Client, submodel: Submodel, params: Params, model: Model) -> bytes:
    """The server's message to a client.

    Args:
        client: Its id, capacity and round are sent, and its correction, where it has one.
        submodel: What it holds.
        params: The global parameters.
        model: Architecture; its axes name a slice's widths.

    Raises:
        ValueError: A mask that leaves out a coordinate that is always held.
    """
    parts = [header(Kind.DOWNLOAD, client.id, client.round, model.layout), struct.pack("<d", client.capacity)]
    if isinstance(submodel, Slice):
        parts += [struct.pack("<B", _Shape.SLICE), pack_widths(submodel.widths, model)]
    elif submodel.held is None:
        parts.append(struct.pack("<B", _Shape.FULL))
    else:
        parts += [struct.pack("<B", _Shape.MASK), pack_mask(maskable_bits(submodel.held, model.layout))]
    parts.append(float32_bytes(held_values(submodel, submodel.gather(params.flat))))
    parts.append(pack_nested(submodel, model))
    if client.correction is not None:
        parts.append(float32_bytes(held_values(submodel, client.correction)))
    return seal(parts)


def decode_download(payload: bytes, model: Model, *, corrected: bool = False) -> Download:
    """What a client reads.

    Args:
        payload: The bytes.
        model: Architecture.
        corrected: Whether a correction comes along, as the run's ``local.scaffold`` says.

    Raises:
        WireError: Not a sound download for this model.
    """
    layout = model.layout
    reader, client, t = open_payload(payload, Kind.DOWNLOAD, layout, _most(layout, corrected))
    capacity, shape = reader.unpack("<dB")
    if not 0 < capacity <= 1:
        raise WireError(f"a capacity must be in (0, 1], got {capacity:g}")
    submodel: Submodel
    if shape == _Shape.FULL:
        submodel = full(layout)
    elif shape == _Shape.MASK:
        submodel = read_mask(reader, layout)
    elif shape == _Shape.SLICE:
        submodel = read_slice(reader, model)
    else:
        raise WireError(f"the kind of a submodel must be 0, 1 or 2, got {shape}")
    values = check_finite(reader.floats(submodel.num_held), "the parameters of a download")
    num_held, submodel = submodel.num_held, unpack_nested(reader, submodel, model)
    small, correction = submodel.local_layout(layout), None
    if corrected:
        correction = check_finite(reader.floats(num_held), "the correction of a download")
        correction = local_vector(submodel, correction, small.size)
    reader.end()
    params = Params(small, local_vector(submodel, values, small.size))
    return Download(client, t, capacity, submodel, params, token_of(payload), correction)


def encode_upload(
    upload: Upload, client: int, t: int, answers: bytes, layout: Layout, precision: Precision = "float32"
) -> bytes:
    """A client's answer.

    Args:
        upload: What its training gave.
        client: Its id.
        t: Round counter.
        answers: Token of the download.
        layout: Layout of the full model.
        precision: Of a statistic of coordinates. One of channels, which are few, and the update travel in float32.
    """
    submodel, statistic = upload.submodel, upload.statistic
    coverage = 0 if statistic is None else _COVERAGE.index(upload.observed)
    parts = [
        header(Kind.UPLOAD, client, t, layout),
        _UPLOAD.pack(answers, float(upload.loss), upload.num_steps, coverage, upload.counted is not None),
        float32_bytes(held_values(submodel, upload.delta)),
    ]
    if statistic is not None and upload.observed == "units":
        parts.append(float32_bytes(statistic.detach().cpu()))
    elif statistic is not None:
        if isinstance(submodel, Slice):
            raise ValueError(f"a statistic of coordinates goes with a mask, client {client} has one for a slice")
        held = submodel.held if upload.observed == "held" else None
        parts.append(encode_statistic(statistic, held, layout, precision))
    if upload.counted is not None:
        parts.append(pack_bits(held_values(submodel, upload.counted).numpy()))
    return seal(parts)


def decode_upload(
    payload: bytes,
    client: int,
    t: int,
    answers: bytes,
    submodel: Submodel,
    layout: Layout,
    signed: Collection[str] = (),
    num_units: int = 0,
) -> Upload:
    """What the server reads: the upload, on the submodel that it sent.

    Args:
        payload: The bytes.
        client: Who was asked.
        t: In which round.
        answers: Token of the download it was sent.
        submodel: The submodel it was sent, as the server sees it.
        layout: Layout of the full model.
        signed: What may be below 0; see :func:`fedfibos.soundness.signed_by`.
        num_units: Channels of all axes of the full model where a statistic must be of channels; 0 where it must not.

    Raises:
        WireError: Not a sound answer to that download. The values of its tensors are looked at in the merge
            (:mod:`fedfibos.soundness`), as those of uploads that came another way.
    """
    reader, *_ = open_payload(payload, Kind.UPLOAD, layout, 9 * layout.size + 8 * len(layout.names), client, t)
    answered, loss, num_steps, coverage, left_out = reader.unpack(_UPLOAD.format)
    if answered != answers:
        raise WireError(f"the upload of client {client} is for another submodel than it was sent")
    if not abs(loss) <= LARGEST:  # also NaN
        raise WireError(f"the training loss must be finite, got {loss}")
    if loss < 0 and "loss" not in signed:
        raise WireError(f"the training loss must be at least 0, as a cross-entropy is, got {loss:g}")
    if num_steps < 1 or coverage >= len(_COVERAGE) or left_out > 1:
        raise WireError(f"an upload's fields are out of range: {num_steps} steps, flags {coverage} and {left_out}")
    size = submodel.local_layout(layout).size
    delta = local_vector(submodel, reader.floats(submodel.num_held), size)
    statistic, observed = None, _COVERAGE[coverage]
    if observed is not None and (observed == "units") != (num_units > 0):
        raise WireError(f"the statistic of client {client} is of {observed}, the method has none such")
    if observed == "units":
        statistic = reader.floats(num_units if submodel.units is None else submodel.units.numel())
    elif observed is not None:
        if isinstance(submodel, Slice):
            raise WireError(f"a statistic of coordinates goes with a mask, client {client} sent one for a slice")
        statistic = decode_statistic(reader, submodel.held if observed == "held" else None, layout)
    counted = None
    if left_out:
        counted = local_vector(submodel, torch.from_numpy(unpack_bits(reader, submodel.num_held)), size)
    reader.end()
    return Upload(submodel, delta, loss, num_steps, statistic, observed or "held", counted)


def encode_mask(client: int, t: int, mask: Mask, layout: Layout) -> bytes:
    """The mask that a client chose by a score of its own."""
    held = torch.ones(layout.size, dtype=torch.bool) if mask.held is None else mask.held
    return seal([header(Kind.MASK, client, t, layout), pack_mask(maskable_bits(held, layout))])


def decode_mask(payload: bytes, client: int, t: int, most: int, layout: Layout) -> Mask:
    """The mask that a client chose.

    Args:
        payload: The bytes.
        client: Who was asked.
        t: In which round.
        most: How many maskable coordinates its capacity allows.
        layout: Layout of the full model.

    Raises:
        WireError: Not a sound mask, or one that holds more than allowed, or nothing.
    """
    reader, *_ = open_payload(payload, Kind.MASK, layout, layout.num_maskable, client, t)
    mask = read_mask(reader, layout)
    reader.end()
    count = mask.num_held - (layout.size - layout.num_maskable)
    if not 1 <= count <= most:
        raise WireError(f"the mask of client {client} must hold 1 to {most} coordinates, got {count}")
    return full(layout) if count == layout.num_maskable else mask


def encode_score(client: int, t: int, score: Tensor, layout: Layout) -> bytes:
    """A shared score, for a client that blends it with its own; float32, shape ``(d,)``."""
    return seal([header(Kind.SCORE, client, t, layout), float32_bytes(score.detach().cpu())])


def decode_score(payload: bytes, client: int, t: int, layout: Layout, signed: Collection[str] = ()) -> Tensor:
    """Inverse of :func:`encode_score`.

    Raises:
        WireError: Not a sound score: one with values that are not finite, or below 0 where ``signed`` does not name the
            ``statistic`` that it is made of.
    """
    reader, *_ = open_payload(payload, Kind.SCORE, layout, 4 * layout.num_maskable, client, t)
    score = check_finite(reader.floats(layout.num_maskable), "a score")
    reader.end()
    if (least := extremes(score)[0]) < 0 and "statistic" not in signed:
        raise WireError(f"a score must be at least 0, as a mean of squares is, got {least:g}")
    return score


def _most(layout: Layout, corrected: bool) -> int:
    """Bytes of a download at most, header aside."""
    return (8 if corrected else 4) * layout.size + layout.num_maskable + 8 * MAX_AXES + most_bytes(layout)
