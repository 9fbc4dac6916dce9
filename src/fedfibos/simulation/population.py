"""The fleet of a simulation: who holds which examples, and what each client can afford in each round."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedfibos.analysis.class_priors import ClassPriors
from fedfibos.channels.costs import Bounded
from fedfibos.common.streams import stream
from fedfibos.config.capacities import Capacities
from fedfibos.privacy.mechanism import Level
from fedfibos.privacy.settings import Sampling
from fedfibos.round import sample, sample_poisson
from fedfibos.simulation.devices import Fleet
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset


class Parts(Sequence[Tensor]):
    """A list of index vectors in one array: a million small tensors would take hundreds of bytes each."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self.positions = torch.cat(list(parts))
        self.ends = torch.tensor([len(part) for part in parts]).cumsum(0)

    def __len__(self) -> int:
        return len(self.ends)

    def sizes(self) -> Tensor:
        """Number of examples of every client."""
        return self.ends.diff(prepend=torch.zeros(1, dtype=torch.int64))

    def owners(self) -> Tensor:
        """The client of each of ``positions``."""
        return torch.arange(len(self)).repeat_interleave(self.sizes())

    def __getitem__(self, client: Any) -> Any:
        """A client's positions, a view; a client's number must be in [0, N)."""
        if not 0 <= client < len(self):
            raise IndexError(f"client must be in [0, {len(self)}), got {client}")
        return self.positions[int(self.ends[client - 1]) if client > 0 else 0 : int(self.ends[client])]


def class_counts(parts: Parts, labels: Tensor, num_classes: int) -> Tensor:
    """Examples of each class of each client; int64, shape ``(clients, num_classes)``."""
    places = parts.owners() * num_classes + labels.cpu()[parts.positions]
    return torch.bincount(places, minlength=len(parts) * num_classes).view(len(parts), num_classes)


@dataclass(frozen=True)
class Population:
    """All clients of a simulation.

    Attributes:
        train: The training set that the clients share out.
        parts: Positions in it of each client's examples, by client id.
        test_parts: Positions in the test set of each client's own test split.
        capacities: What each client can afford.
        local: How clients train.
        rounds: Length of the run (the learning rate's schedule).
        seed: Root of the random streams.
        weighting: ``uniform``, by number of ``samples``, or a number for each client.
        budget: What capacities are shares of.
        fleet: Its classes of devices; None: every client can afford its capacity.
        sampling: How a cohort is drawn, and whether it is a secret.
    """

    train: Dataset
    parts: Parts
    test_parts: Parts
    capacities: Capacities
    local: LocalTraining
    rounds: int
    seed: int
    weighting: str | tuple[float, ...]
    budget: tuple[Bounded, ...] = ("parameters",)
    fleet: Fleet | None = None
    sampling: Sampling = "fixed"

    def __len__(self) -> int:
        return len(self.parts)

    def data(self, client: int) -> Dataset:
        """A client's training examples."""
        return self.train.subset(self.parts[client])

    def clients(self, ids: list[int], t: int) -> list[Client]:
        """Those clients as they are in round t; their data stays behind (``data``)."""
        local = self.local.at_round(t, self.rounds).with_levels(self.capacities.table)
        return [
            Client(
                id=n,
                capacity=capacity,
                round=t,
                seed=self.seed,
                local=local,
                weight=self.weight(n),
                budget=self.budget,
                limits=self.limits(capacity),
            )
            for n, capacity in zip(ids, self.capacities.of(ids, t), strict=True)
        ]

    def with_fleet(self, fleet: Fleet) -> Population:
        """The same clients with devices of those classes."""
        return replace(self, fleet=fleet, capacities=fleet.capacities)

    def limits(self, capacity: float) -> tuple[tuple[Bounded, int], ...]:
        """What bounds the slices of a capacity besides: the limits of its devices, where the fleet has any."""
        return () if self.fleet is None else self.fleet.limits(capacity)

    @property
    def ids(self) -> Sequence[int]:
        """Clients that take part at all, ascending: all but those whose devices can hold nothing."""
        return range(len(self)) if self.fleet is None else self.fleet.ids

    def cohort(self, size: int, t: int) -> list[int]:
        """The participants of round t; all that can take part where they are fewer."""
        drawn = sample_poisson if self.sampling == "poisson" else sample
        return [self.ids[position] for position in drawn(len(self.ids), size, self.seed, t)]

    def levels(self, cohort: list[int], size: int, t: int) -> tuple[Level, ...]:
        """The capacities of round t, each with the number of participants that is expected to have it.

        Where the cohort is no secret, with the number that has it. Otherwise with its share of all clients, whoever
        takes part.

        Args:
            cohort: The participants of round t.
            size: How many are wanted.
            t: The round.
        """
        ids = cohort if self.sampling == "known" else list(self.ids)
        capacities = self.capacities.of(ids, t)
        each = 1.0 if self.sampling == "known" else min(size, len(ids)) / len(ids)
        return tuple(
            Level(self.clients([ids[capacities.index(capacity)]], t)[0], capacities.count(capacity) * each)
            for capacity in sorted(set(capacities), reverse=True)
        )

    def everyone(self, t: int) -> list[Client]:
        """All clients that take part as they are in round t."""
        return self.clients(list(self.ids), t)

    def weight(self, client: int) -> float:
        """Of a client's upload in the averages; 1 on average over the clients."""
        if self.weighting == "uniform":
            return 1.0
        if isinstance(self.weighting, str):
            return len(self.parts[client]) / self.mean_size
        return self.weighting[client] / (sum(self.weighting) / len(self.weighting))

    @cached_property
    def mean_size(self) -> float:
        """Mean number of training examples of a client."""
        return len(self.parts.positions) / len(self.parts)

    @cached_property
    def dealt_sha256(self) -> str:
        """Of who has which examples, of which classes: equal where two runs deal the same data alike."""
        digest = hashlib.sha256()
        for dealt in (self.parts, self.test_parts):
            for numbers in (dealt.positions, dealt.ends):
                digest.update(numbers.numpy().data)
        digest.update(self.train.labels.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def class_priors(self, num_test: int, num_classes: int) -> ClassPriors:
        """Class frequencies of the clients that the test set's examples belong to."""
        owner = torch.full((num_test,), -1)
        owner[self.test_parts.positions] = self.test_parts.owners()
        return ClassPriors.of(self.train.labels, self.parts, owner, num_classes)

    def calibration(self, num_examples: int) -> Dataset:
        """A fixed random sample of the training examples of the clients that take part."""
        everything = self.parts.positions
        if len(self.ids) < len(self):
            everything = torch.cat([self.parts[n] for n in self.ids])
        order = torch.randperm(len(everything), generator=stream(self.seed, "calibration"))
        return self.train.subset(everything[order[:num_examples]])
