"""The values that a federated round passes around."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from fedfibos.channels.costs import Bounded
from fedfibos.common.inputs import Inputs
from fedfibos.common.streams import stream
from fedfibos.params import Layout
from fedfibos.scores.rows import MemoryRows, Rows
from fedfibos.submodel import Submodel, check_capacity
from fedfibos.training import LocalTraining


class Dataset(Protocol):
    """Labelled examples held by one client, or a whole split."""

    @property
    def labels(self) -> Tensor:
        """The target of every example: its class, int64 of shape ``(n,)``, or what the task learns, ``(n, ...)``."""

    def __len__(self) -> int:
        """Number of examples, n."""

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> Inputs:
        """The model's inputs for some examples.

        Args:
            indices: int64, shape ``(b,)``, positions in this data set.
            augment: Random stream of the training augmentation; None for none (evaluation).
        """

    def subset(self, indices: Tensor) -> Dataset:
        """The data set of those examples, in that order; shares memory with this one where it can."""


@dataclass(frozen=True)
class Client:
    """One participant in one round.

    Attributes:
        id: Stable identity, the key of everything the server keeps of a client.
        capacity: γ in (0, 1].
        round: Round counter t, from 0.
        seed: Root of the run's random streams.
        weight: Weight of its upload in the averages (1, or its number of examples).
        data: Its training examples; None where only the server's side is needed.
        local: How it trains this round (learning rate already scheduled).
        budget: What its capacity is a share of, for methods that cut channels: each of these is bounded. Masks are
            shares of the parameters in any case.
        correction: With ``local.scaffold``, what is added to each step's gradient: the server's control variate minus
            the client's own, in the client's local layout.
        limits: What its device has, for methods that cut channels: ``(what, number)``, bounds beside its capacity. Two
            clients of one capacity have the same.
    """

    id: int
    capacity: float
    round: int
    seed: int
    local: LocalTraining
    data: Dataset | None = None
    weight: float = 1.0
    budget: tuple[Bounded, ...] = ("parameters",)
    correction: Tensor | None = None
    limits: tuple[tuple[Bounded, int], ...] = ()

    def __post_init__(self) -> None:
        check_capacity(self.capacity, f"client {self.id}")
        if not 0.0 <= self.weight < math.inf:
            raise ValueError(f"the weight of client {self.id} must be 0 or a positive number, got {self.weight:g}")

    def in_round(self, t: int, rounds: int) -> Client:
        """The client in round t of ``rounds``, its learning rate scheduled; of the client as it was made, in round 0.

        Round ``rounds`` is the one after the last: what a method would hand out next, which evaluations look at.

        Raises:
            ValueError: It is in a later round already: its learning rate would be scheduled twice.
        """
        if self.round and self.local.schedule != "constant":
            raise ValueError(
                f"in_round schedules the learning rate of a client as it was made, in round 0, got client {self.id} in "
                f"round {self.round}"
            )
        return replace(self, round=t, local=self.local.at_round(t, rounds))

    def stream(self, purpose: str) -> torch.Generator:
        """The client's own random stream for this round and purpose."""
        return stream(self.seed, purpose, self.round, self.id)


NO_ESTIMATE = -1.0
"""In a statistic of channels, where a client has no estimate of one: it held it, and no step of its training did."""


@dataclass(frozen=True)
class Upload:
    """What a client sends back. Tensors are in the client's local layout (see ``submodel``).

    Attributes:
        submodel: The coordinates it held.
        delta: Start minus end of the local training, zero off the mask.
        loss: Mean training loss over its steps, at least 0; a number, or one in a tensor that the device may still be
            at.
        num_steps: Local steps made.
        statistic: A statistic for the server, at least 0 (FedFIbOS: the Fisher estimate), or None. Of each maskable
            coordinate, or (``observed = "units"``) of each channel that the submodel holds, axis after axis; there
            :data:`NO_ESTIMATE` stands where the client has none. A slice has none but of channels.
        observed: Where ``statistic`` is an estimate: on the ``held`` coordinates only, on ``all``, or of ``units``.
        counted: bool in the local layout: where the client counts as a holder in the averages, if that is less than
            what its submodel holds (class rows of absent labels do not); None otherwise.
        seconds: How long its training took, where that was measured.
        memory: Bytes that the process which trained it has held at once so far, at most, where that was measured.
    """

    submodel: Submodel
    delta: Tensor
    loss: float | Tensor
    num_steps: int
    statistic: Tensor | None = None
    observed: Literal["held", "all", "units"] = "held"
    counted: Tensor | None = None
    seconds: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class State:
    """What the server keeps between rounds besides the parameters.

    Attributes:
        tensors: Named tensors of fixed number (a shared score, say).
        rows: Per-client vectors of the method's.
        variates: Per-client control variates, with ``local.scaffold``.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    rows: Rows = field(default_factory=MemoryRows)
    variates: Rows = field(default_factory=MemoryRows)

    def with_tensors(self, **tensors: Tensor) -> State:
        """The state with those tensors replaced or added."""
        return replace(self, tensors={**self.tensors, **tensors})

    def with_row(self, client: int, row: Tensor) -> State:
        """The state with that client's row replaced."""
        return replace(self, rows=self.rows.put(client, row))


BYTES_PER_VALUE = 4
"""Of the float32 values that a round sends, before any compression."""


def download_bytes(submodel: Submodel, layout: Layout, *, corrected: bool = False) -> int:
    """Server to client: the held values, and for a mask the d bits that say which they are.

    A slice needs no bitmap: its channels follow from the method, the round and the width. Where local steps train
    smaller members of a nested family, each member is a bit for every ranked coordinate of the one before it, and of
    slices a bit for every channel that the client holds. With SCAFFOLD (``corrected``) a correction of every held value
    comes along.
    """
    bitmap = -(-layout.num_maskable // 8) if submodel.held is not None else 0
    always, last = layout.size - layout.num_maskable, submodel
    for member in submodel.nested:
        bitmap += -(-(last.num_held - always if member.units is None else member.num_units) // 8)
        last = member
    return BYTES_PER_VALUE * submodel.num_held * (2 if corrected else 1) + bitmap


def upload_bytes(upload: Upload, layout: Layout) -> int:
    """Client to server: the update on the held coordinates, and the statistic where it is an estimate.

    A statistic of the held coordinates covers the maskable ones alone; those of normalisation are always held. Where
    the client counts as a holder of less than it holds, a bit for each says of what.
    """
    statistic = 0
    counted = 0 if upload.counted is None else -(-upload.submodel.num_held // 8)
    if upload.statistic is not None:
        held = upload.submodel.num_held - (layout.size - layout.num_maskable)
        statistic = held if upload.observed == "held" else upload.statistic.numel()
    return BYTES_PER_VALUE * (upload.submodel.num_held + statistic) + counted
