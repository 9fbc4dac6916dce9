"""What a device can afford, measured on the device: memory and seconds of a training step, bytes of a round.

It is measured of what the task's own method would send. A slice is a smaller network: a smaller capacity saves all
three. A mask is trained in tensors of full size, whatever it holds: it saves bytes on the connection alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from fedfibos.cost import Cost, cost
from fedfibos.flower.task import Task
from fedfibos.submodel import Mask, Submodel
from fedfibos.types import Client, Dataset
from fedfibos.wire.payload import WireError

CAPACITIES = (1.0, 0.5, 0.25, 0.125, 0.0625)

LIMITS = ("memory-limit", "seconds-per-step", "bytes-per-round")
"""Keys of a device's node config, in the order of :class:`Limits`."""


@dataclass(frozen=True)
class Limits:
    """What a device has; None: no limit.

    Attributes:
        memory: Bytes of local training at its peak (:attr:`fedfibos.cost.Cost.memory`).
        seconds: Seconds for a training step.
        traffic: Bytes that a round may send to the device and back.
    """

    memory: float | None = None
    seconds: float | None = None
    traffic: float | None = None

    def allow(self, found: Cost) -> bool:
        """Whether memory and bytes of a capacity keep within the limits; seconds have to be taken."""
        enough_memory = self.memory is None or found.memory <= self.memory
        return enough_memory and (self.traffic is None or found.bytes_down + found.bytes_up <= self.traffic)

    def __str__(self) -> str:
        limits = zip(LIMITS, (self.memory, self.seconds, self.traffic), strict=True)
        return " and ".join(f"{name} {value:.12g}" for name, value in limits if value is not None)


def affordable(task: Task, data: Dataset, limits: Limits) -> float:
    """The largest of :data:`CAPACITIES` that keeps within the limits in the method's first round.

    Args:
        task: Method, model and local training.
        data: The client's examples.
        limits: What the device has.

    Raises:
        WireError: Not even the smallest capacity keeps within the limits, or the task cannot be trained here.
    """
    for capacity in CAPACITIES:
        try:
            found = cost(task.method, task.model, capacity, data, task.local)
        except ValueError as error:  # no slice of the model is as small as this; no training on these examples
            raise WireError(f"no capacity from {capacity:g} down keeps within {limits}: {error}") from error
        if limits.allow(found) and (limits.seconds is None or step_seconds(task, capacity, data) <= limits.seconds):
            return capacity
    masks = isinstance(_submodel(task, _client(task, CAPACITIES[-1], data, 1)), Mask)
    too_large = limits.memory is not None and found.memory > limits.memory
    why = ""
    if masks and (too_large or limits.seconds is not None):
        why = (
            ": a mask is trained in tensors of full size, whatever it holds; set capacity, or bytes-per-round, or "
            "choose a method that slices"
        )
    raise WireError(f"no capacity down to {CAPACITIES[-1]:g} keeps within {limits}{why}")


def step_seconds(task: Task, capacity: float, data: Dataset, steps: int = 3) -> float:
    """Seconds of one training step: the mean over a few, after one to warm up."""
    params = task.model.initial_params()
    first, client = _client(task, capacity, data, 1), _client(task, capacity, data, steps)
    submodel = _submodel(task, client)
    task.method.train(task.model, params, submodel, first)
    started = time.perf_counter()
    task.method.train(task.model, params, submodel, client)
    return (time.perf_counter() - started) / steps


def _submodel(task: Task, client: Client) -> Submodel:
    params = task.model.initial_params()
    return task.method.extract(task.model, task.method.init(params), params, client)


def _client(task: Task, capacity: float, data: Dataset, steps: int) -> Client:
    return Client(0, capacity, 0, task.seed, replace(task.local, steps=steps, epochs=None), data)
