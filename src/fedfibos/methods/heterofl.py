"""HeteroFL: a client of width r trains the first ⌈rC⌉ of the C channels of every layer.

Small submodels are prefixes of large ones. Each parameter becomes the mean over the clients that hold it; one that
nobody held keeps its value.

References:
    Diao, Ding, Tarokh. HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
    Clients. ICLR 2021. arXiv:2010.01264. Code: github.com/diaoenmao/HeteroFL-Computation-and-Communication-
    Efficient-Federated-Learning-for-Heterogeneous-Clients at cc40f3e.

Training in the paper's CIFAR-10 experiments (settings of an experiment, not of the method):
    SGD, lr 0.1 (times 0.1 at rounds 300 and 500 of 800), momentum 0.9, decay 5e-4, clip 1, 5 epochs of batch 10; 10 of
    100 clients a round. Widths 1, 1/2, 1/4, 1/8, 1/16 (``capacity_basis = "width"``), redrawn every round
    (``assignment = "dynamic"``). Masked cross-entropy (``local.absent_labels = "mask"``), static batch normalisation.

Deviations:
    - A capacity is a share of the parameters by default, as in the other methods; ``capacity_basis = "width"`` is the
      paper's.
    - The scaler follows every convolution, linear and embedding layer whose outputs are cut, as in the paper (section
      3) and the released CNN and transformer. The released ResNet, which normalises before it convolves, scales in
      front of each normalisation instead, leaving the residual stream as it is.
    - The released code averages a classifier row over the clients that have its label whether or not the loss is
      masked; here it goes with ``absent_labels = "mask"``.
    - Widths are dealt in exact proportions every round (released: drawn independently for every client).
    - Where a model can only be cut in units (groups of GroupNorm; every attention head alike), C counts units.
    - Evaluation is the library's: released numbers are those of the full model at its best round, weighted by examples,
      "local" ones with the scores of absent classes set to 0. Classes drawn twice by a client lose data there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedfibos.aggregate import Average, Sums
from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.methods._slicing import CapacityBasis, costs_of, prefix, scaler_cautions, train_slice, width_held
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Client, State, Upload


@dataclass(frozen=True)
class HeteroFL:
    """Prefixes of channels.

    Attributes:
        capacity_basis: What a capacity is a fraction of: ``parameters``, or channels (``width``).
        scaler: Divide the outputs of every cut layer by the width in training.
        average: What the sum of the updates of a coordinate is divided by: the weight of its ``holders``, or of all
            ``participants``.
        server_lr: The server's learning rate η_s: a factor of the averaged update.
    """

    capacity_basis: CapacityBasis = "parameters"
    scaler: bool = True
    average: Average = "holders"
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "server_lr")

    @property
    def personal(self) -> bool:
        """No: clients of a capacity hold the same prefix."""
        return False

    def cautions(self, model: Model, capacities: Sequence[float]) -> list[str]:
        """A scaler that nothing undoes."""
        return scaler_cautions(model, capacities, self.scaler)

    def init(self, params: Params) -> State:
        """HeteroFL keeps nothing but the parameters."""
        return State()

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The first ⌈rC⌉ channels of every axis."""
        return prefix(
            model, client.capacity, self.capacity_basis, costs_of(model, client, self.train, self.capacity_basis)
        )

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


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"capacity_basis": "width", "scaler": True, "average": "holders"},
}
