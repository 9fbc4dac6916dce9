"""A federation small enough to reason about: Gaussian classes, a multilayer perceptron of some tens of parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fedfibos.common.streams import stream
from fedfibos.data.images import TensorData
from fedfibos.method import Method
from fedfibos.model import Model, model_of
from fedfibos.models.mlp import MLP
from fedfibos.params import Params
from fedfibos.round import federated_round, sample
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

NUM_CLASSES = 3


def tiny_model(hidden: int = 6, num_features: int = 4) -> Model:
    return model_of(MLP(NUM_CLASSES, (num_features,), (hidden,)))


def random_params(model: Model, seed: int) -> Params:
    values = torch.randn(model.layout.size, generator=stream(seed, "params")) * 0.4
    return Params(model.layout, values)


def gaussian_data(seed: int, client: int = 0, num_examples: int = 12, num_features: int = 4) -> TensorData:
    """Skewed classes: most examples of a client belong to one class, a few to any."""
    generator = stream(seed, "data", client)
    labels = torch.randint(NUM_CLASSES, (num_examples,), generator=generator)
    labels[: num_examples * 2 // 3] = client % NUM_CLASSES
    centres = torch.randn(NUM_CLASSES, num_features, generator=stream(seed, "centres"))
    noise = torch.randn(num_examples, num_features, generator=generator)
    return TensorData(centres[labels] + 0.5 * noise, labels)


def fleet(seed: int, capacities: Sequence[float], local: LocalTraining | None = None) -> Callable[[int], list[Client]]:
    """Round -> all clients at that round."""
    local = local or LocalTraining(steps=3, batch_size=5, lr=0.3)
    data = [gaussian_data(seed, client) for client in range(len(capacities))]

    def at_round(t: int) -> list[Client]:
        return [Client(i, c, t, seed, local, data[i]) for i, c in enumerate(capacities)]

    return at_round


def masks(method: Method, model: Model, state: State, params: Params, clients: Sequence[Client]) -> torch.Tensor:
    """The clients' masks; bool, shape (clients, d)."""
    rows = []
    for client in clients:
        held = torch.zeros(model.layout.size)
        method.extract(model, state, params, client).count_in(held, 1.0)
        rows.append(held[: model.layout.num_maskable] > 0)
    return torch.stack(rows)


def mask_history(
    method: Method,
    model: Model,
    params: Params,
    clients: Callable[[int], list[Client]],
    rounds: int,
    cohort_size: int | None = None,
) -> list[torch.Tensor]:
    """Every client's mask before each round of real training, and after the last."""
    state, history = method.init(params), []
    for t in range(rounds):
        everyone = clients(t)
        history.append(masks(method, model, state, params, everyone))
        chosen = sample(len(everyone), cohort_size or len(everyone), everyone[0].seed, t)
        cohort = [everyone[i] for i in chosen]
        state, params, _ = federated_round(method, model, state, params, cohort)
    return [*history, masks(method, model, state, params, clients(rounds))]
