"""Small models, and a cohort to train them, which tests of rounds and methods share."""

from __future__ import annotations

from functools import cache

import torch

from fedfibos.data.images import TensorData
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.params import maskable_names
from fedfibos.training import LocalTraining
from fedfibos.types import Client

CAPACITIES = (1.0, 0.5, 0.25)
INPUT, CLASSES = (1, 8, 8), 4

MODELS = {
    "mlp": lambda: build("mlp", CLASSES, INPUT, seed=1, hidden=(16,)),
    "cnn-batch": lambda: build("cnn", CLASSES, INPUT, norm="batch", seed=2, channels=(8, 16)),
    "resnet8-group": lambda: build("resnet8", CLASSES, INPUT, norm="group", seed=1),
    "mlp-held-head": lambda: build("mlp", CLASSES, INPUT, seed=1, hidden=(16,)),
}


@cache  # a model is a value; deriving its axes takes most of a short test
def small_model(name: str = "mlp") -> Model:
    """One of :data:`MODELS`; of ``mlp-held-head`` every client holds the classifier whole."""
    module = MODELS[name]()
    held = ("classifier",) if name == "mlp-held-head" else ()
    return model_of(module, maskable=maskable_names(module, held), example=torch.zeros(2, *INPUT))


def data(n: int, size: int = 12) -> TensorData:
    generator = torch.Generator().manual_seed(100 + n)
    return TensorData(
        torch.randn(size, *INPUT, generator=generator), torch.randint(CLASSES, (size,), generator=generator)
    )


def cohort(t: int = 0, capacity: float | None = None, size: int = 4) -> list[Client]:
    local = LocalTraining(steps=2, batch_size=4, lr=0.05)
    return [
        Client(n, CAPACITIES[n % len(CAPACITIES)] if capacity is None else capacity, t, 7, local, data(n))
        for n in range(size)
    ]
