"""Submodels, and values on their coordinates, as parts of a payload."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfibos.backend.reductions import all_finite
from fedfibos.model import Model
from fedfibos.params import Layout
from fedfibos.submodel import Mask, Slice, Submodel
from fedfibos.wire.bitmap import unpack_mask
from fedfibos.wire.payload import Reader, WireError


def maskable_bits(held: Tensor, layout: Layout) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which maskable coordinates a mask holds."""
    if not bool(held[layout.num_maskable :].all()):
        raise ValueError("a mask must hold every coordinate that is not maskable")
    bits: np.ndarray[Any, np.dtype[np.bool_]] = held[: layout.num_maskable].cpu().numpy()
    return bits


def read_mask(reader: Reader, layout: Layout) -> Mask:
    """The mask that comes next in a payload."""
    held = torch.ones(layout.size, dtype=torch.bool)
    held[: layout.num_maskable] = torch.from_numpy(unpack_mask(reader, layout.num_maskable))
    return Mask(held, int(held.sum()))


def pack_widths(widths: tuple[tuple[str, int], ...], model: Model) -> bytes:
    """The widths of a slice's axes, by the axes' numbers."""
    numbers = {axis: number for number, axis in enumerate(model.axes.sizes)}
    pairs = [struct.pack("<HI", numbers[axis], width) for axis, width in widths]
    return struct.pack("<H", len(pairs)) + b"".join(pairs)


def read_slice(reader: Reader, model: Model) -> Slice:
    """The slice as the client sees it: small tensors, local coordinates."""
    axes = tuple(model.axes.sizes)
    (count,) = reader.unpack("<H")
    widths: dict[str, int] = {}
    for _ in range(count):
        number, width = reader.unpack("<HI")
        axis = axes[number] if number < len(axes) else None
        if axis is None or axis in widths or not 1 <= width <= model.axes.sizes[axis]:
            raise WireError(f"a slice's axis {number} of width {width} is not one of the model's {len(axes)} axes")
        widths[axis] = width
    return model.axes.own_view(model.layout, widths)


def held_values(submodel: Submodel, local: Tensor) -> Tensor:
    """The held coordinates of a local vector, one after another."""
    local = local.detach().cpu()
    return local[submodel.held.cpu()] if submodel.held is not None else local


def local_vector(submodel: Submodel, dense: Tensor, size: int) -> Tensor:
    """The local vector with those held coordinates, zero elsewhere."""
    if submodel.held is None:
        return dense
    local = torch.zeros(size, dtype=dense.dtype)
    local[submodel.held.cpu()] = dense
    return local


def float32_bytes(values: Tensor) -> bytes:
    """The values, four bytes each."""
    return values.numpy().astype("<f4", copy=False).tobytes()


def check_finite(values: Tensor, what: str) -> Tensor:
    """Raise WireError unless all are."""
    if not all_finite(values):
        raise WireError(f"{what} must be finite, got {int((~values.isfinite()).sum())} values that are not")
    return values
