"""A fleet dealt out in classes of devices: which class a client is of, what it can hold, and who takes no part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch

from fedfibos.analysis.fitting import Fit
from fedfibos.channels.costs import Bounded
from fedfibos.common.formatting import count_of
from fedfibos.common.streams import stream
from fedfibos.config.capacities import Capacities
from fedfibos.config.devices import Device, clients_of


@dataclass(frozen=True)
class Fleet:
    """The classes of a fleet under one method.

    Attributes:
        fits: What each class can hold.
        places: The class of every client, by id: its position among them.
        seed: Root of the run's random streams.
    """

    fits: tuple[Fit, ...]
    places: tuple[int, ...]
    seed: int

    @cached_property
    def ids(self) -> list[int]:
        """The clients that take part, ascending."""
        return [n for n, place in enumerate(self.places) if self.fits[place].capacity is not None]

    def count(self, place: int) -> int:
        """Clients of a class."""
        return self.places.count(place)

    @property
    def capacities(self) -> Capacities:
        """Of those that take part."""
        of = [fit.capacity for fit in self.fits]
        present = sorted({capacity for capacity in of if capacity is not None}, reverse=True)
        members = {c: sum(self.count(place) for place, own in enumerate(of) if own == c) for c in present}
        table = {capacity: number / len(self.ids) for capacity, number in members.items()}
        return Capacities(table, len(self.places), "fixed", self.seed, [of[place] or 0.0 for place in self.places])

    def limits(self, capacity: float) -> tuple[tuple[Bounded, int], ...]:
        """What bounds the slices of a capacity in every round; nothing where no class has it."""
        return next((fit.limits for fit in self.fits if fit.capacity == capacity), ())

    def left_out(self) -> list[str]:
        """A line for every class that takes no part."""
        return [
            f"device {fit.device.name!r} ({count_of(self.count(place), 'client')}) takes no part: {fit.left_out}"
            for place, fit in enumerate(self.fits)
            if fit.capacity is None
        ]

    def short_of(self, cohort: int) -> list[str]:
        """A line where fewer clients take part than a cohort has."""
        if len(self.ids) >= cohort:
            return []
        return [
            f"only {len(self.ids)} of {count_of(len(self.places), 'client')} can take part: they are the cohort of "
            f"every round, in place of federation.cohort = {cohort}"
        ]

    def record(self) -> dict[str, Any]:
        """For ``final.json``: class -> what its clients held in the first round, or why they took no part."""
        return {fit.device.name: {"clients": self.count(n), **describe_fit(fit)} for n, fit in enumerate(self.fits)}

    @cached_property
    def sha256(self) -> str:
        """Of what every client can hold: equal where two runs train the same submodels."""
        held = [[fit.device.name, fit.capacity, fit.limits] for fit in self.fits]
        return hashlib.sha256(json.dumps([held, self.places]).encode()).hexdigest()


def describe_fit(fit: Fit) -> dict[str, Any]:
    """What a class can hold, or why it can hold nothing, as JSON has it."""
    if fit.cost is None:
        return {"left_out": fit.left_out}
    return {**asdict(fit.cost), "seconds": fit.seconds, "bound_by": list(fit.bound_by)}


def deal_devices(devices: Sequence[Device], num_clients: int, seed: int) -> tuple[int, ...]:
    """The class of every client, by id: exact shares, dealt at random on a stream of their own."""
    limits = torch.tensor(list(accumulate(clients_of(tuple(devices), num_clients))))
    order = torch.randperm(num_clients, generator=stream(seed, "devices"))
    return tuple(torch.bucketize(order, limits, right=True).tolist())


def fleet_of(fits: Sequence[Fit], num_clients: int, seed: int) -> Fleet:
    """The fleet of those classes.

    Raises:
        ValueError: No class can take part.
    """
    fleet = Fleet(tuple(fits), deal_devices([fit.device for fit in fits], num_clients, seed), seed)
    if not fleet.ids:
        reasons = "; ".join(f"{fit.device.name!r}: {fit.left_out}" for fit in fits)
        raise ValueError(f"no class of federation.devices can take part: {reasons}")
    return fleet
