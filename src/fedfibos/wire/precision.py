"""How a statistic of the coordinates (the Fisher estimate) travels: float32, or half of that."""

from __future__ import annotations

import struct
from typing import Literal, get_args

import torch
from torch import Tensor

from fedfibos.params import Layout
from fedfibos.wire.payload import Reader, WireError

Precision = Literal["float32", "bfloat16", "float16"]
"""``bfloat16`` keeps 8 significant bits over the whole range; ``float16`` 11, relative to the tensor's largest value
(one float32 scale each): squared gradients, which lie far below float16's own range, fit."""

_LARGEST = 65504.0


def encode_statistic(statistic: Tensor, held: Tensor | None, layout: Layout, precision: Precision) -> bytes:
    """A statistic, shape ``(d,)``: on the coordinates of ``held`` (bool, at least ``(d,)``), or everywhere (None)."""
    values, counts = _chosen(statistic.detach().cpu(), held, layout)
    head = struct.pack("<B", get_args(Precision).index(precision))
    if precision == "float32":
        return head + values.numpy().astype("<f4", copy=False).tobytes()
    if precision == "bfloat16":
        return head + values.to(torch.bfloat16).view(torch.uint16).numpy().astype("<u2", copy=False).tobytes()
    scales = torch.stack([
        piece.abs().max() / _LARGEST if len(piece) else torch.zeros(()) for piece in values.split(counts)
    ])  # fmt: skip
    divisors = torch.where(scales > 0, scales, 1.0).double().repeat_interleave(torch.tensor(counts))
    # In double precision and bounded: a scale that is hardly a float is rounded, and its inverse overflows.
    scaled = (values / divisors).clamp_(-_LARGEST, _LARGEST)
    return head + scales.numpy().astype("<f4").tobytes() + scaled.half().numpy().astype("<f2", copy=False).tobytes()


def decode_statistic(reader: Reader, held: Tensor | None, layout: Layout) -> Tensor:
    """Inverse of :func:`encode_statistic`; shape ``(d,)``, zero where it was not sent.

    Raises:
        WireError: The bytes are no such statistic.
    """
    (number,) = reader.unpack("<B")
    if number >= len(get_args(Precision)):
        raise WireError(f"a statistic's precision must be 0, 1 or 2, got {number}")
    result = torch.zeros(layout.num_maskable)
    _, counts = _chosen(result, held, layout)
    total, precision = sum(counts), get_args(Precision)[number]
    if precision == "float32":
        values = reader.floats(total)
    elif precision == "bfloat16":
        values = torch.from_numpy(reader.array("<u2", total)).view(torch.bfloat16).float()
    else:
        scales = reader.floats(len(counts))
        halves = torch.from_numpy(reader.array("<f2", total)).float()
        values = halves * scales.repeat_interleave(torch.tensor(counts))
    if held is None:
        return values
    result[held[: layout.num_maskable].cpu()] = values
    return result


def _chosen(statistic: Tensor, held: Tensor | None, layout: Layout) -> tuple[Tensor, list[int]]:
    """The values that travel, and how many are of each maskable tensor."""
    if held is None:
        return statistic, list(layout.numels[: layout.num_maskable_tensors])
    bits = held[: layout.num_maskable].cpu()
    return statistic[bits], [int(bits[start:stop].sum()) for _, start, stop in layout.maskable()]
