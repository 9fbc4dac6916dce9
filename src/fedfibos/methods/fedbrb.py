"""FedBRB: clients train one block of every tensor; blocks roll, and trained blocks are broadcast to the others.

This is a **declared interpretation**. The paper's text was not available beyond its abstract, and there is no public
code. What the abstract says: tensors are divided into blocks; small local models train the blocks in turn, so that all
of them are trained (FedRolex only ever reaches the diagonal of a tensor whose inputs and outputs roll together); and
trained blocks are broadcast, with weights, to the entire parameter space. What is ours:

- A client of width r holds blocks of b = ⌈rC⌉ channels of an axis of C; there are ⌈C/b⌉, the last shifted back to fit.
  Inputs of the model and class rows are not cut.
- ``positional``: a layer's block of inputs is chosen independently of the block of outputs of the layer before, so all
  pairs (p, q) of output and input blocks come up, in row-major order. The small network then joins channels that are
  not joined in the large one; the broadcast, which makes blocks alike, is what gives that a sense.
- ``aligned``: one block an axis, so the small network is part of the large one; axes that meet in a tensor advance at
  different speeds, so that all pairs come up.
- Broadcast: after averaging over holders, a parameter x_j that nobody held becomes (1 − λ) x_j + λ · mean of the
  trained values at the same place of their block, weighted by the participants that trained it. λ = 0 rolls only.
  A large λ makes the blocks copies of one another, which then stay so: the network is as good as a narrow one.
- Training as in HeteroFL: its scaler, its classifier rows under masked labels.

References:
    Xu, Xu, Liao, Zheng, Chen. FedBRB: An Effective Solution to the Small-to-Large Scenario in Device-Heterogeneity
    Federated Learning. arXiv:2402.17202.

Deviations:
    Unknown, for the reason above: report results as "FedBRB (our interpretation)". In the abstract's setting no client
    holds the full model; with one in the cohort every parameter is held and nothing is left to broadcast to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedfibos.aggregate import Average, Sums
from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.methods._blocks import (
    block_channels,
    block_numbers,
    block_of,
    blocks_in,
    broadcast_blocks,
    by_role,
    input_axis,
    num_blocks,
    positional,
    with_block,
    without_blocks,
)
from fedfibos.methods._slicing import (
    CapacityBasis,
    costs_of,
    input_dims,
    scaler_cautions,
    train_slice,
    width_held,
    width_of,
)
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel, full
from fedfibos.types import Client, State, Upload


@dataclass(frozen=True)
class FedBRB:
    """Rolling blocks and their broadcast.

    Attributes:
        capacity_basis: What a capacity is a fraction of: ``parameters``, or channels (``width``).
        blocks: How input and output blocks go together: ``positional`` or ``aligned``.
        broadcast: λ in [0, 1], share that untrained blocks take from trained ones.
        scaler: Divide the outputs of every cut layer by the width in training.
        average: What the sum of the updates of a coordinate is divided by: the weight of its ``holders``, or of all
            ``participants``.
        server_lr: The server's learning rate η_s: a factor of the averaged update.
    """

    capacity_basis: CapacityBasis = "parameters"
    blocks: Literal["positional", "aligned"] = "positional"
    broadcast: float = 0.1
    scaler: bool = True
    average: Average = "holders"
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "server_lr")
        if not 0.0 <= self.broadcast <= 1.0:
            raise ValueError(f"broadcast must be in [0, 1], got {self.broadcast:g}")

    @property
    def personal(self) -> bool:
        """No: the round tells the block."""
        return False

    def cautions(self, model: Model, capacities: Sequence[float]) -> list[str]:
        """A scaler that nothing undoes."""
        return scaler_cautions(model, capacities, self.scaler)

    def init(self, params: Params) -> State:
        """FedBRB keeps nothing but the parameters from round to round."""
        return State()

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The round's block of every tensor."""
        axes = model.axes
        costs = costs_of(model, client, self.train, self.capacity_basis)
        widths = axes.widths(width_of(model, client.capacity, self.capacity_basis, costs))
        if widths == dict(axes.sizes):
            return full(model.layout)
        inputs, counts = input_dims(model), num_blocks(axes, widths)
        if self.blocks == "positional":
            axes, numbers = by_role(axes, inputs), positional(counts, client.round)
        else:
            numbers = block_numbers(axes, inputs, counts, client.round)
        sizes = {**widths, **{input_axis(a): w for a, w in widths.items()}}
        channels = {a: block_channels(axes.sizes[a], sizes[a], number) for a, number in numbers.items()}
        return block_of(axes, model.layout, channels, widths).to(model.device)

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Local training, scaled."""
        width = width_held(model, submodel, client.capacity, self.capacity_basis)
        return train_slice(model, params, submodel, client, width=width, scaler=self.scaler)

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """The block that a participant trained, and its weight, are kept until the round's broadcast."""
        return with_block(state, upload.submodel, client.weight) if self.broadcast > 0 else state

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """x ← x − η_s · mean Δ, then the broadcast to what nobody held."""
        flat = sums.server_step(params, self.average, self.server_lr).flat
        if self.broadcast > 0:
            flat = broadcast_blocks(params.layout, flat, sums.holders > 0, blocks_in(state), self.broadcast)
        return without_blocks(state), Params(params.layout, flat)


PRESETS: dict[str, dict[str, Any]] = {
    "interpretation": {"blocks": "positional", "broadcast": 0.1, "average": "holders"},
    "rolling only": {"blocks": "positional", "broadcast": 0.0, "average": "holders"},
}
