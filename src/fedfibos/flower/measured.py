"""The capacities of devices that give limits: found as ``fedfibos plan`` finds them, and again when they change."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from fedfibos.analysis.fitting import Costs, Work, examples_of, fit_of
from fedfibos.flower.messages import Member
from fedfibos.flower.task import FleetTask
from fedfibos.methods._memory import Examples
from fedfibos.submodel import Slice
from fedfibos.types import Client
from fedfibos.wire.payload import WireError

MOMENTS = 5
"""Measurements of a device's speed whose median counts: it may be busy at one of them."""

LEVELS = 10
"""Capacities of a fleet, at most, that nested steps are counted with before they are known."""

FIRST = "it joined"


class Measured:
    """Finds the capacity of every device that declares limits, and keeps what was measured.

    Attributes:
        found: Client -> what was measured since the last round, as its line records it: ``capacity``, ``why``, ``was``
            (the capacity before, where it is another), ``macs_per_second``.
    """

    def __init__(self, task: FleetTask, past: Iterable[Mapping[str, Any]] = ()) -> None:
        """Know what was measured so far.

        Args:
            task: What is run.
            past: Lines of ``rounds.jsonl``.
        """
        self._task = task
        self._speeds: dict[int, deque[float]] = {}
        self._capacities: dict[int, float] = {}
        self._why: dict[int, str] = {}
        self.found: dict[int, dict[str, Any]] = {}
        for line in past:
            for client, found in line.get("measured", {}).items():
                self._capacities[int(client)] = found["capacity"]
                if "macs_per_second" in found:
                    self._moments(int(client)).append(found["macs_per_second"])

    @cached_property
    def fits(self) -> bool:
        """Whether capacities are found here: the method cuts channels, and the server has an example to count with.

        What it counts with has made-up targets: classes.
        """
        task = self._task
        if task.federation.scores == "client" or task.model.example is None or not task.model.task.classes:
            return False
        params, half = task.model.initial_params(), Client(0, 0.5, 0, 0, task.local, budget=task.federation.budget)
        try:
            return isinstance(task.method.extract(task.model, task.method.init(params), params, half), Slice)
        except ValueError:  # the model cannot be cut, or not to a half
            return False

    def expect(self, clients: Iterable[int], why: str) -> None:
        """These clients will measure anew, for that reason."""
        self._why |= dict.fromkeys(clients, why)

    def member(self, said: Member) -> Member:
        """A client as it declares itself, with its capacity.

        Raises:
            WireError: It can hold no submodel.
        """
        client, member, speed = said.client, said, None
        if said.device is not None and self.fits:
            device = said.device
            if said.measured and device.macs_per_second is not None:
                self._moments(client).append(speed := device.macs_per_second)
                device = replace(device, macs_per_second=statistics.median_low(self._moments(client)))
            fit = fit_of(self._costs.with_examples(examples_of(self._task.local, said.examples)), device)
            if fit.capacity is None:
                raise WireError(fit.left_out)
            member = replace(said, capacity=fit.capacity, limits=fit.limits)
        if said.device is not None or said.measured:
            self._note(client, member.capacity, speed)
        return member

    def over(self) -> dict[int, dict[str, Any]]:
        """A round is recorded: what was measured before it, and nothing of the next."""
        found, self.found = self.found, {}
        return found

    def _note(self, client: int, capacity: float, speed: float | None) -> None:
        before = self._capacities.get(client)
        why = self._why.pop(client, FIRST if before is None else "it came back")
        found: dict[str, Any] = {"capacity": capacity, "why": why}
        if before is not None and before != capacity:
            found["was"] = self.found.get(client, {}).get("was", before)
        if speed is not None:
            found["macs_per_second"] = speed
        self._capacities[client], self.found[client] = capacity, found

    def _moments(self, client: int) -> deque[float]:
        return self._speeds.setdefault(client, deque(maxlen=MOMENTS))

    @cached_property
    def _costs(self) -> Costs:
        """Counted with made-up examples: nothing that is counted depends on what is in them."""
        task, model = self._task, self._task.model
        assert model.example is not None
        data = Examples(model.example, torch.zeros(max(task.local.batch_size, 2), dtype=torch.int64))
        work = Work(data, task.local, task.federation.budget, 1)
        return Costs(task.method, model, work, min(task.federation.cohort, LEVELS))
