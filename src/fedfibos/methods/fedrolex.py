"""FedRolex: a client of width r trains a window of ⌈rC⌉ of the C channels of every layer, which rolls over the rounds.

In round t the window of every layer starts at channel t mod C and wraps around, the same for all clients: a smaller
window is a prefix of a larger one, and every channel is trained equally often. Each parameter becomes the mean over the
clients that hold it; one that nobody held keeps its value.

References:
    Alam, Liu, Yan, Zhang. FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction.
    NeurIPS 2022. arXiv:2212.01548. Code: github.com/AIoT-MLSys-Lab/FedRolex at 8135109.

Training in the released CIFAR-10 experiments (settings of an experiment, not of the method):
    SGD, lr 2e-4 (times 0.25 at rounds 800 and 1200 of 3200), momentum 0.9, decay 1e-3, clip 1, 1 epoch of batch 10; 10
    of 100 clients a round. Widths 1, 1/2, 1/4, 1/8, 1/16 (``capacity_basis = "width"``), redrawn every
    round (``assignment = "dynamic"``). Masked cross-entropy (``local.absent_labels = "mask"``), batch normalisation.

Deviations:
    - A capacity is a share of the parameters by default; ``capacity_basis = "width"`` is the paper's.
    - The released window is {(i − t) mod C}: it rolls backwards (``shift = -1``, ``PRESETS["released"]``); the paper's
      rolls forwards. They mirror each other.
    - ⌈rC⌉ channels, as released; the paper writes ⌊rC⌋.
    - Scaler and the averaging of classifier rows are those of HeteroFL, as in the released code; see there.
    - Not reproduced: the released server overwrites its counters of updates while it reads them, so that norms, biases
      and the classifier weigh their holders 1, 2, 3, ... in the order of the clients. Its options ``overlap`` (which
      reshuffles in all rounds but every 512th, and advances with every client) and ``random`` are left out.
    - Where a model can only be cut in units (groups of GroupNorm), the window rolls by units.
    - Evaluation is the library's: the released code normalises with the statistics of the test batch.
    - Coverage: of a C x C tensor clients of windows of L channels ever train min(1, (2L − 1)/C).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedfibos.aggregate import Average, Sums
from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.methods._slicing import (
    CapacityBasis,
    costs_of,
    scaler_cautions,
    slice_of,
    train_slice,
    width_held,
    width_of,
)
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Client, State, Upload


@dataclass(frozen=True)
class FedRolex:
    """Rolling windows of channels.

    Attributes:
        capacity_basis: What a capacity is a fraction of: ``parameters``, or channels (``width``).
        shift: Channels by which the window moves each round; negative: backwards.
        scaler: Divide the outputs of every cut layer by the width in training.
        average: What the sum of the updates of a coordinate is divided by: the weight of its ``holders``, or of all
            ``participants``.
        server_lr: The server's learning rate η_s: a factor of the averaged update.
    """

    capacity_basis: CapacityBasis = "parameters"
    shift: int = 1
    scaler: bool = True
    average: Average = "holders"
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "server_lr")

    @property
    def personal(self) -> bool:
        """No: all clients of a round share the start of the window."""
        return False

    def cautions(self, model: Model, capacities: Sequence[float]) -> list[str]:
        """A scaler that nothing undoes."""
        return scaler_cautions(model, capacities, self.scaler)

    def init(self, params: Params) -> State:
        """FedRolex keeps nothing but the parameters; the round tells the window."""
        return State()

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The window of every axis."""
        costs = costs_of(model, client, self.train, self.capacity_basis)
        widths = model.axes.widths(width_of(model, client.capacity, self.capacity_basis, costs))
        start = self.shift * client.round
        return slice_of(model, {axis: window(model.axes.sizes[axis], width, start) for axis, width in widths.items()})

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Local training, scaled."""
        width = width_held(model, submodel, client.capacity, self.capacity_basis)
        return train_slice(model, params, submodel, client, width=width, scaler=self.scaler)

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """Nothing is kept of a client."""
        return state

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """x ← x − η_s · mean Δ; at η_s = 1 the mean over the holders' values."""
        return state, sums.server_step(params, self.average, self.server_lr)


def window(size: int, width: int, start: int) -> Tensor:
    """``width`` channels of ``size`` from ``start``, wrapping around; int64, in that order.

    Example:
        >>> window(4, 3, 2).tolist()
        [2, 3, 0]
    """
    return (torch.arange(width) + start) % size


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"capacity_basis": "width", "shift": 1, "scaler": True, "average": "holders"},
    "released": {"capacity_basis": "width", "shift": -1, "scaler": True, "average": "holders"},
}
