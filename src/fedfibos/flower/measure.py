"""What a device can afford, measured on the device: memory and seconds of one training step.

A mask is trained in tensors of full size, whatever it holds: it saves bytes on the connection, not memory or time. A
slice saves all three. The measurement is therefore of the first channels of every layer, as HeteroFL would send them.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from fedfibos.channels.slices import prefix
from fedfibos.cost import training_memory
from fedfibos.flower.task import Task
from fedfibos.local import local_training
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Dataset
from fedfibos.wire.payload import WireError

CAPACITIES = (1.0, 0.5, 0.25, 0.125, 0.0625)


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
            submodel = prefix(task.model, capacity)
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
    """Bytes of one training step, as of :func:`fedfibos.cost.training_memory`."""
    batch = torch.arange(min(task.local.batch_size, len(data)))
    return training_memory(task.model, task.model.initial_params(), submodel, data, batch, task.local)


def step_seconds(task: Task, submodel: Submodel, data: Dataset, steps: int = 3) -> float:
    """Seconds of one training step: the mean over a few, after one to warm up."""
    _step(task, submodel, data, 1)
    started = time.perf_counter()
    _step(task, submodel, data, steps)
    return (time.perf_counter() - started) / steps


def _step(task: Task, submodel: Submodel, data: Dataset, steps: int) -> None:
    local = replace(task.local, steps=steps, epochs=None)
    client = Client(0, 1.0, 0, task.seed, local, data)
    local_training(task.model, task.model.initial_params(), submodel, client)
