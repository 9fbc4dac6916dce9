"""What a device can afford, measured on the device: memory and seconds of one training step.

A mask is trained in tensors of full size, whatever it holds: it saves bytes on the connection, not memory or time. A
slice saves all three. The measurement is therefore of the first channels of every layer, as HeteroFL would send them.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from fedfibos.axes import prefix_slice
from fedfibos.flower.task import Task
from fedfibos.local import local_training
from fedfibos.params import Params
from fedfibos.payload import WireError
from fedfibos.submodel import Submodel, full
from fedfibos.types import Client, Dataset

CAPACITIES = (1.0, 0.5, 0.25, 0.125, 0.0625)
BYTES_PER_VALUE = 4
COPIES = 4
"""Start, trained values, gradients and update."""


def affordable(task: Task, data: Dataset, *, memory_limit: float | None, seconds_per_step: float | None) -> float:
    """The largest of :data:`CAPACITIES` whose training step keeps within the limits.

    Args:
        task: Model and local training.
        data: The client's examples.
        memory_limit: Bytes for parameters, gradients and the activations of a step; None: no limit.
        seconds_per_step: Seconds; None: no limit.

    Raises:
        WireError: Not even the smallest capacity keeps within the limits.
    """
    for capacity in CAPACITIES:
        try:
            submodel = full(task.model.layout) if capacity == 1.0 else prefix_slice(task.model, capacity)
        except ValueError:
            break  # no slice of the model is as small as this
        fits = memory_limit is None or step_bytes(task, submodel, data) <= memory_limit
        if fits and (seconds_per_step is None or step_seconds(task, submodel, data) <= seconds_per_step):
            return capacity
    raise WireError(
        f"no capacity down to {CAPACITIES[-1]:g} keeps within memory-limit {memory_limit} and "
        f"seconds-per-step {seconds_per_step}"
    )


def step_bytes(task: Task, submodel: Submodel, data: Dataset) -> int:
    """Bytes of parameters, gradients, optimiser and the activations kept for the backward pass, of one step."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _step(task, submodel, data, 1)
    moments = 2 if task.local.optimizer == "adamw" else int(task.local.momentum > 0)
    return sum(kept.values()) + BYTES_PER_VALUE * submodel.num_held * (COPIES + moments)


def step_seconds(task: Task, submodel: Submodel, data: Dataset, steps: int = 3) -> float:
    """Seconds of one training step: the mean over a few, after one to warm up."""
    _step(task, submodel, data, 1)
    started = time.perf_counter()
    _step(task, submodel, data, steps)
    return (time.perf_counter() - started) / steps


def _step(task: Task, submodel: Submodel, data: Dataset, steps: int) -> None:
    local = replace(task.local, steps=steps, epochs=None)
    client = Client(0, 1.0, 0, task.seed, local, data)
    params = Params(task.model.layout, task.model.initial_params().flat)
    local_training(task.model, params, submodel, client)
