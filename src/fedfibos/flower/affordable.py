"""What a device says of what it can afford: a capacity, or limits by which the server finds one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from fedfibos.analysis.first_round import first_round
from fedfibos.analysis.fitting import examples_of
from fedfibos.config.devices import Device
from fedfibos.flower.measure import CAPACITIES, Limits, affordable_capacity
from fedfibos.flower.speed import measured_speed
from fedfibos.flower.task import FleetTask
from fedfibos.types import Client, Dataset
from fedfibos.wire.payload import WireError

MOST = 2**62
"""Bytes that a message can name."""

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class Found:
    """What a device declares.

    Attributes:
        capacity: Its own, or one of :data:`~fedfibos.flower.measure.CAPACITIES`, with which training is tried.
        device: Its limits beyond what its process takes before it trains, where the server finds the capacity by them.
        measured: Whether the capacity, or the speed in its limits, was measured.
    """

    capacity: float
    device: Device | None = None
    measured: bool = False


def found_of(
    task: FleetTask, capacity: float | None, data: Dataset, limits: Limits | None, before: int, fits: bool
) -> Found:
    """What a device can afford.

    Args:
        task: Method, model and local training.
        capacity: What its node config says; with limits the one that it has had so far, if any.
        data: Its examples.
        limits: What it has; None: its node config says the capacity.
        before: Bytes resident in this process before the model is built, the examples included.
        fits: Whether the server finds capacities by limits.

    Raises:
        WireError: It can afford nothing, or the task cannot be trained here.
    """
    if limits is None:
        assert capacity is not None
        return Found(capacity)
    if not fits:
        return Found(affordable_capacity(task, data, limits, before), measured=True)
    memory = None if limits.memory is None else int(min(limits.memory, MOST)) - before
    if memory is not None and memory < 1:
        raise WireError(f"memory-limit is {limits.memory:.12g} bytes, its process takes {before} before it trains")
    seconds, measured = _round_seconds(task, data, limits), False
    speeds = limits.macs_per_second, limits.examples_per_second
    if seconds is not None and speeds == (None, None):
        if capacity is None:
            try:
                capacity = affordable_capacity(task, data, limits, before)
            except WireError:  # the server may find a smaller one than is tried here
                capacity = _to_try(task, data)
        speeds, measured = (measured_speed(task, _client(task, capacity, data)), None), True
        LOG.info("measured speed: %.3g operations of training a second, with capacity %g", speeds[0], capacity)
    traffic = None if limits.traffic is None else int(min(limits.traffic, MOST))
    device = Device("a device", 1.0, memory, *speeds, seconds, traffic)
    return Found(_to_try(task, data) if capacity is None else capacity, device, measured)


def _round_seconds(task: FleetTask, data: Dataset, limits: Limits) -> float | None:
    """For a round's local training; of limits for a step and for a round the tighter."""
    seconds = [] if limits.round_seconds is None else [limits.round_seconds]
    if limits.seconds is not None:
        batch = min(task.local.batch_size, len(data))
        seconds.append(limits.seconds * examples_of(task.local, len(data)) / batch)
    return min(seconds, default=None)


def _to_try(task: FleetTask, data: Dataset) -> float:
    """The smallest of the capacities that devices try whose submodel the method has; the largest where it has none."""
    for capacity in reversed(CAPACITIES):
        try:
            first_round(task.method, task.model, _client(task, capacity, data))
        except ValueError:  # no slice is as small as this
            continue
        return capacity
    return CAPACITIES[0]


def _client(task: FleetTask, capacity: float, data: Dataset) -> Client:
    local = replace(task.local, steps=1, epochs=None)
    return Client(0, capacity, 0, task.seed, local, data, budget=task.federation.budget)
