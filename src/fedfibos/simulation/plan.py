"""Who of a fleet of devices can take part under each method, and with what: known before anything is trained."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedfibos.analysis.cost import forward_macs
from fedfibos.analysis.fitting import PASSES, Fit, Work, fits
from fedfibos.analysis.process_memory import after_imports
from fedfibos.config.devices import clients_of
from fedfibos.config.experiment import Experiment
from fedfibos.method import Method
from fedfibos.methods import METHODS, FedAvg
from fedfibos.model import Model
from fedfibos.simulation.devices import describe_fit
from fedfibos.simulation.world import Warn, build_world, work_of
from fedfibos.submodel import full
from fedfibos.types import Client

STEPS = 5
"""Steps that a machine's speed is the median of."""


@dataclass(frozen=True)
class MethodPlan:
    """A fleet under one method.

    Attributes:
        name: Of the method.
        method: The method.
        fits: What each class of devices can hold, in the order of the file.
    """

    name: str
    method: Method
    fits: tuple[Fit, ...]


@dataclass(frozen=True)
class Speed:
    """How fast this machine trains the whole model.

    Attributes:
        examples_per_second: As a class of devices may have it.
        macs_per_second: The same, in operations.
        threads: That torch used.
        imports: Bytes that a client's process takes before it trains.
    """

    examples_per_second: float
    macs_per_second: float
    threads: int
    imports: int


@dataclass(frozen=True)
class FleetPlan:
    """A fleet under several methods.

    Attributes:
        experiment: Model, data, local training and devices.
        parameters: Of the whole model.
        examples: That a client trains on in a round, at most.
        methods: One method after another.
        measured: How fast this machine is, where that was asked for.
    """

    experiment: Experiment
    parameters: int
    examples: int
    methods: tuple[MethodPlan, ...]
    measured: Speed | None = None

    def clients(self) -> tuple[int, ...]:
        """Clients of each class of devices."""
        federation = self.experiment.federation
        return clients_of(federation.devices, federation.clients)

    def as_json(self) -> dict[str, Any]:
        """All of it as numbers and text; bytes, seconds, operations of an example forward."""
        devices = self.experiment.federation.devices
        clients = {device.name: count for device, count in zip(devices, self.clients(), strict=True)}
        found: dict[str, Any] = {
            "parameters": self.parameters,
            "examples_a_round": self.examples,
            "clients": clients,
            "methods": {plan.name: {fit.device.name: describe_fit(fit) for fit in plan.fits} for plan in self.methods},
        }
        return found if self.measured is None else {**found, "measured": vars(self.measured)}


def plan_fleet(
    experiment: Experiment,
    *,
    alone: bool = False,
    measure: bool = False,
    data_dir: Path | None = None,
    warn: Warn = lambda text: None,
) -> FleetPlan:
    """What the devices of an experiment can hold under every method.

    Args:
        experiment: With classes of devices (``federation.devices``).
        alone: Only under its own method.
        measure: Whether to measure how fast this machine trains the whole model.
        data_dir: The data folder.
        warn: Called with every warning, in one line.

    Raises:
        ValueError: It has no devices; also what :func:`fedfibos.build_world` raises.
    """
    federation = experiment.federation
    if not federation.devices:
        raise ValueError(
            "a plan is of classes of devices, [[federation.devices]], the experiment has none; fedfibos methods "
            "says what its capacities cost"
        )
    anyone = replace(experiment, federation=replace(federation, devices=(), capacities={1.0: 1.0}))
    world = build_world(anyone, data_dir=data_dir, warn=warn)
    work = work_of(experiment, world.split, world.population)
    own = experiment.method.name.rpartition(":")[2]  # of a user's own, the class
    methods: Mapping[str, Method] = {own: world.method}
    if not alone:
        methods = {**{name: made() for name, made in METHODS.items()}, **methods}
    plans = [
        MethodPlan(name, of, tuple(fits(of, world.model, federation.devices, work))) for name, of in methods.items()
    ]
    speed = measured_speed(world.model, work) if measure else None
    return FleetPlan(experiment, world.model.layout.size, work.examples, tuple(plans), speed)


def measured_speed(model: Model, work: Work, clock: Callable[[], float] = time.perf_counter) -> Speed:
    """How fast this process trains the whole model: the median of a few clients of a step, after one to warm up.

    Args:
        model: The model.
        work: How clients train, and examples.
        clock: Seconds.
    """
    params, size = model.initial_params().to(model.device), max(work.local.batch_size, 2)
    batch = work.data.subset(torch.arange(size) % len(work.data))
    client = Client(0, 1.0, 0, 0, replace(work.local, steps=STEPS, epochs=None, nested=0.0), batch)
    one = replace(client, local=replace(client.local, steps=1))
    trial, everything, method = model.with_own_workspaces(), full(model.layout), FedAvg()
    taken = []
    with torch.random.fork_rng(devices=[]):
        method.train(trial, params, everything, client)
        for _ in range(STEPS):
            began = clock()
            method.train(trial, params, everything, client)
            middle = clock()
            method.train(trial, params, everything, one)
            taken.append(((middle - began) - (clock() - middle)) / (STEPS - 1))  # what is not a step's own cancels
    seconds = max(statistics.median(taken), 1e-9)
    examples = work.local.batch_size / seconds
    macs = forward_macs(model, params, everything, work.data)
    return Speed(examples, examples * PASSES * macs, torch.get_num_threads(), after_imports())
