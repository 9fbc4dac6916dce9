"""FedAvg: every client trains the whole model, whatever it can afford.

The reference point: all-full-size clients give the ceiling of a comparison. The floor, a model small enough for
every client, is FedAvg on the smallest slice of the model (``width``).

References:
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas. Communication-Efficient Learning of Deep Networks from
    Decentralized Data. AISTATS 2017. arXiv:1602.05629.

Deviations:
    Uploads count equally by default (the paper weights by examples: ``federation.weighting = "samples"``).
"""

from __future__ import annotations

from dataclasses import dataclass

from fedfibos.aggregate import Average, Sums
from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.local import local_training
from fedfibos.methods._slicing import prefix
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel, check_capacity
from fedfibos.types import Client, State, Upload


@dataclass(frozen=True)
class FedAvg:
    """Every client trains the same model.

    Attributes:
        capacity: 1: the whole model. Below 1: the same narrow model for everyone, the first channels of every
            layer at the largest width whose share of the maskable parameters is at most ``capacity``.
        average: As in the other methods: divide by the weight of the ``holders``, or of all ``participants``. Everyone
            holds the same, so the two differ only where a client counts as no holder of the classes that it lacks
            (``absent_labels = "mask"``).
        server_lr: The server's learning rate η_s: a factor of the averaged update.
    """

    capacity: float = 1.0
    average: Average = "participants"
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "server_lr")
        check_capacity(self.capacity, "fedavg")

    @property
    def personal(self) -> bool:
        """No: one model for all."""
        return False

    def init(self, params: Params) -> State:
        """FedAvg keeps nothing but the parameters."""
        return State()

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The same submodel for every client."""
        return prefix(model, self.capacity)

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Plain local training."""
        return local_training(model, params, submodel, client)

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """Nothing is kept of a client."""
        return state

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """x ← x − η_s · mean Δ."""
        return state, sums.server_step(params, self.average, self.server_lr)
