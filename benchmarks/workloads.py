"""What the benchmarks train: models, clients and steps, shared by every side of a comparison.

Only torch and ``fedfibos.models`` are imported, so that the peers' environments can read this file too.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.models import build

LR = 0.05
CAPACITIES = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Capacities of the paper's uniform fleet; client n has number n modulo 5."""


@dataclass(frozen=True)
class Workload:
    """One federated round: ``clients`` clients, each ``steps`` steps of ``batch`` examples of its own.

    Attributes:
        model: Name of a bundled model.
        input_shape: Shape of an example.
        classes: Number of classes.
        clients: Clients in the round.
        examples: Examples of a client; one epoch over them, so ``steps`` is their quotient rounded up.
        batch: Batch size.
        options: Options of the model.
    """

    model: str
    input_shape: tuple[int, ...]
    classes: int
    clients: int
    examples: int
    batch: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Steps of a client."""
        return -(-self.examples // self.batch)

    def module(self) -> nn.Module:
        """The model with its initial values, equal at every call."""
        return build(self.model, num_classes=self.classes, input_shape=self.input_shape, seed=0, **self.options)

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's inputs and labels: noise, as speed does not depend on them."""
        generator = torch.Generator().manual_seed(client)
        inputs = torch.randn(self.examples, *self.input_shape, generator=generator)
        return inputs, torch.randint(self.classes, (self.examples,), generator=generator)


WORKLOADS = {
    "tiny_mlp": Workload("mlp", (20,), 4, 10, 200, 32, {"hidden": [64]}),
    "cnn": Workload("cnn", (3, 32, 32), 10, 5, 200, 32),
    "resnet8": Workload("resnet8", (3, 32, 32), 10, 5, 200, 32),
    "resnet18": Workload("resnet18", (3, 32, 32), 10, 2, 60, 20),
    "mlp_11m": Workload("mlp", (3072,), 10, 5, 640, 32, {"hidden": [2200, 1900]}),
    "mlp_11m_1_step": Workload("mlp", (3072,), 10, 5, 32, 32, {"hidden": [2200, 1900]}),
}
"""The 1-step row is the hardest one: a client's fixed costs against a single step."""

LAYOUTS = {
    "lenet": Workload("lenet", (3, 32, 32), 10, 2, 100, 20, {"channels": [16, 32], "hidden": 128}),
    "cnn, no norm": Workload("cnn", (3, 32, 32), 10, 2, 100, 20, {"norm": "none"}),
    "cnn, batch norm": Workload("cnn", (3, 32, 32), 10, 2, 100, 20, {"norm": "batch"}),
    "cnn, group norm": Workload("cnn", (3, 32, 32), 10, 2, 100, 20, {"norm": "group"}),
    "resnet8, batch norm": Workload("resnet8", (3, 32, 32), 10, 2, 100, 20, {"norm": "batch"}),
    "resnet8, group norm": Workload("resnet8", (3, 32, 32), 10, 2, 100, 20, {"norm": "group"}),
    "resnet18, batch norm": Workload("resnet18", (3, 32, 32), 10, 1, 40, 20, {"norm": "batch"}),
}
"""Where the layout of images may matter."""


@functools.cache
def kept_module(name: str) -> nn.Module:
    """A workload's module, made once in a process."""
    return WORKLOADS[name].module()


@functools.cache
def kept_data(name: str, client: int) -> tuple[Tensor, Tensor]:
    """A client's data, made once in a process."""
    return WORKLOADS[name].data(client)


def bare_round(workload: Workload, module: nn.Module, start: list[Tensor], data: list[tuple[Tensor, Tensor]]) -> float:
    """The same SGD steps in a plain loop: no masks, no averaging, one module, nothing copied but the start values.

    Returns:
        The mean loss.
    """
    total, count = torch.zeros(()), 0
    parameters = list(module.parameters())
    for inputs, labels in data:
        with torch.no_grad():
            for parameter, value in zip(parameters, start, strict=True):
                parameter.copy_(value)
        optimizer = torch.optim.SGD(parameters, LR)
        for indices in torch.randperm(len(labels)).split(workload.batch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs[indices]), labels[indices])
            loss.backward()
            optimizer.step()
            total += loss.detach()
            count += 1
    return float(total) / count


def stopwatch() -> Callable[[], dict[str, float]]:
    """A clock that starts now; read, it gives seconds on the wall and of this process's processor time.

    Other load on the machine moves processor time less than the wall clock.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    return lambda: {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
