"""Memory that a worker process shares with its parent: no parameter-sized tensor goes through a pipe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedfibos.channels.family import depths, masks_of, slice_within
from fedfibos.model import Model
from fedfibos.params import Layout
from fedfibos.submodel import Mask, Slice, Submodel, full
from fedfibos.types import Client, Upload


@dataclass
class Slot:
    """Memory shared with one worker, so that no parameter-sized tensor goes through a pipe."""

    depths: Tensor
    index: Tensor
    delta: Tensor
    statistic: Tensor
    correction: Tensor


@dataclass(frozen=True)
class Packed:
    """A submodel without its large tensors.

    Attributes:
        counts: Coordinates that it holds, and where it is a mask those that its nested members hold.
        nested: Channels that each nested slice keeps of those that the client holds (:attr:`Slice.units`).
        layout: Of a slice.
        widths: Of a slice.
        units: How many channels a slice holds.
        corrected: Length of the client's correction; None without one.
    """

    counts: tuple[int, ...]
    nested: list[np.ndarray[Any, np.dtype[np.int64]]]
    layout: Layout | None = None
    widths: tuple[tuple[str, int], ...] = ()
    units: int = 0
    corrected: int | None = None


@dataclass(frozen=True)
class Reply:
    """An upload without its large tensors."""

    loss: float
    num_steps: int
    statistic_size: int | None
    observed: Literal["held", "all", "units"]
    counted: np.ndarray[Any, np.dtype[np.bool_]] | None
    seconds: float | None
    memory: int | None


def shared_zeros(size: int, dtype: torch.dtype) -> Tensor:
    """Zeros that processes share; memory that is never written is never taken (an index, where there are no slices)."""
    storage = torch.UntypedStorage._new_shared(size * dtype.itemsize, device="cpu")
    return torch.empty(0, dtype=dtype).set_(storage, 0, (size,))  # type: ignore[call-overload, no-any-return]


def slot_of(size: int) -> Slot:
    """Memory for submodels and uploads of a model of that many parameters."""
    return Slot(
        shared_zeros(size, torch.uint8),
        shared_zeros(size, torch.int64),
        *(shared_zeros(size, torch.float32) for _ in range(3)),
    )


def pack(slot: Slot, submodel: Submodel) -> Packed:
    """Put a submodel's large tensor into the slot; return what goes through the pipe."""
    nested = [member.units.cpu().numpy() for member in submodel.nested if member.units is not None]
    if isinstance(submodel, Slice):
        assert submodel.index is not None, "a client's own view of its slice is not sent on"
        size = submodel.num_held
        slot.index[:size] = submodel.index
        units = 0 if submodel.units is None else submodel.units.numel()
        return Packed((size,), nested, submodel.layout, submodel.widths, units)
    masks = [submodel] if nested else [submodel, *submodel.nested]
    if any(mask.held is not None for mask in masks):
        slot.depths.copy_(depths(replace(submodel, nested=tuple(masks[1:]))))
    return Packed(tuple(mask.num_held for mask in masks), nested)


def pack_job(slot: Slot, client: Client, submodel: Submodel) -> tuple[Client, Packed]:
    """Put a job's large tensors into the slot; return what goes through the pipe."""
    packed = pack(slot, submodel)
    if client.correction is not None:
        packed = replace(packed, corrected=client.correction.numel())
        slot.correction[: client.correction.numel()] = client.correction
    return replace(client, data=None, correction=None), packed


def unpack_client(slot: Slot, client: Client, packed: Packed) -> Client:
    """The client of a job, in the worker; its correction lies in the slot."""
    return client if packed.corrected is None else replace(client, correction=slot.correction[: packed.corrected])


def unpack(slot: Slot, packed: Packed, model: Model) -> Submodel:
    """Inverse of :func:`pack`, in the worker; the submodel lies in the slot."""
    submodel: Submodel
    if packed.layout is not None:
        units = torch.arange(packed.units) if packed.units else None
        submodel = Slice(slot.index[: packed.counts[0]], packed.layout, packed.widths, units=units)
    elif packed.counts == (model.layout.size,):
        submodel = full(model.layout)
    else:
        submodel = masks_of(slot.depths, packed.counts)
    if not packed.nested:
        return submodel
    members = (slice_within(submodel, torch.from_numpy(units), model.axes, model.layout) for units in packed.nested)
    return replace(submodel, nested=tuple(members))


def deposit(slot: Slot, upload: Upload) -> Reply:
    """Copy the upload's large tensors into the slot; return the rest."""
    slot.delta[: upload.delta.numel()] = upload.delta
    if upload.statistic is not None:
        slot.statistic[: upload.statistic.numel()] = upload.statistic
    counted = None if upload.counted is None else upload.counted.numpy()
    size = None if upload.statistic is None else upload.statistic.numel()
    told = (upload.seconds, upload.memory)
    return Reply(float(upload.loss), upload.num_steps, size, upload.observed, counted, *told)


def read_upload(slot: Slot, submodel: Submodel, reply: Reply, keep: bool) -> Upload:
    """The upload in a slot; ``keep``: copied, so that it outlives the worker's next job."""
    delta = slot.delta if isinstance(submodel, Mask) else slot.delta[: submodel.num_held]
    statistic = None if reply.statistic_size is None else slot.statistic[: reply.statistic_size]
    if keep:
        delta, statistic = delta.clone(), None if statistic is None else statistic.clone()
    counted = None if reply.counted is None else torch.from_numpy(reply.counted)
    told = (reply.seconds, reply.memory)
    return Upload(submodel, delta, reply.loss, reply.num_steps, statistic, reply.observed, counted, *told)
