"""What a report is made of: groups (one method, several seeds) and problems (methods on the same data)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedfibos.common.statistics import Spread, spread
from fedfibos.config.experiment import Experiment
from fedfibos.report.labels import file_name, free_name
from fedfibos.report.records import Record
from fedfibos.runs.made import DEALT, INITIAL
from fedfibos.runs.measures import Measure

ROUNDING = 0.01
"""Share of the parameters by which tensors that each keep one coordinate may be above a capacity."""


@dataclass(frozen=True)
class Group:
    """One method on one problem: runs that differ by seed only.

    Attributes:
        label: The method, with what sets it apart from others on the same problem.
        records: Finished runs, by seed.
    """

    label: str
    records: tuple[Record, ...]

    @property
    def experiment(self) -> Experiment:
        """The settings that all runs share (their seed is the first run's)."""
        return self.records[0].experiment

    def over_seeds(self, *keys: str) -> Spread | None:
        """Mean and spread of an entry of ``final.json``: ``over_seeds("global", "full", "last")``."""
        return spread(_entry(record.results, keys) for record in self.records)

    def by_seed(self, *keys: str) -> dict[int, float]:
        """The same by seed, of the runs that have it."""
        found = {record.experiment.seed: _entry(record.results, keys) for record in self.records}
        return {seed: value for seed, value in found.items() if value is not None}

    def over_its_share(self) -> bool:
        """Whether an evaluation found a submodel of more than its capacity, by more than rounding."""
        shares = [point.evaluation.get("shares", {}) for record in self.records for point in record.points]
        return any(share > float(capacity) + ROUNDING for of in shares for capacity, share in of.items())

    def began(self, key: str) -> dict[int, str | None]:
        """A digest of what a run began with (``DEALT``, ``INITIAL``), by seed; None in records older than it."""
        return {record.experiment.seed: record.environment.get(key) for record in self.records}


@dataclass(frozen=True)
class Problem:
    """Data, partition, model, fleet and rounds, on which methods are compared.

    Attributes:
        label: In words: the data and how they are dealt; the fleet.
        scale: In words: model, clients, rounds.
        groups: The methods.
        references: FedAvg on the same data with other fleets (a ceiling, a floor); no part of the comparison.
    """

    label: str
    scale: str
    groups: tuple[Group, ...]
    references: tuple[Group, ...] = ()

    @property
    def measure(self) -> Measure:
        """What the methods are measured by first."""
        return self.groups[0].records[0].measure

    @property
    def experiment(self) -> Experiment:
        """The settings that the groups share (method and local training are the first group's)."""
        return self.groups[0].experiment

    def unlike(self) -> str:
        """What differs that makes a comparison unfair, in words: of local training, and of the data; else empty."""
        budgets = {
            (g.experiment.local.steps, g.experiment.local.epochs, g.experiment.local.batch_size) for g in self.groups
        }
        absent = {g.experiment.local.absent_labels for g in self.groups}
        said = []
        if len(budgets) > 1:
            said.append(
                "The methods' local budgets (steps or epochs, batch size) differ here: no comparison at equal cost."
            )
        if len(absent) > 1:
            said.append("What they do with classes that a client has no example of (absent_labels) differs here.")
        if over := [group.label for group in self.groups if group.over_its_share()]:
            said.append(
                f"Clients hold more than their capacities with {', '.join(over)} (“share held”): no comparison at "
                "equal capacity."
            )
        for key, what in ((DEALT, "Clients had other examples"), (INITIAL, "The model began with other values")):
            by_seed: dict[int, set[str]] = {}
            for seed, digest in (item for group in self.groups for item in group.began(key).items()):
                if digest is not None:
                    by_seed.setdefault(seed, set()).add(digest)
            if other := [str(seed) for seed, digests in sorted(by_seed.items()) if len(digests) > 1]:
                said.append(
                    f"{what} in some runs of seed {', '.join(other)} ({key} in environment.json: other files, versions "
                    "of numpy or torch, or code that draws from no seed): no pairs."
                )
        return " ".join(said)


@dataclass(frozen=True)
class Sorted:
    """What a report is made of.

    Attributes:
        problems: Finished runs. Runs that are nothing but another problem's references have no problem of their own.
        unfinished: Runs without ``final.json``; in no table of results.
        notes: What was noticed, one line each.
        unmeasured: Finished runs without an evaluation; in no table of results either.
    """

    problems: tuple[Problem, ...]
    unfinished: tuple[Record, ...]
    notes: tuple[str, ...]
    unmeasured: tuple[Record, ...] = ()

    def groups(self) -> list[Group]:
        """Every group of finished runs, once."""
        found = [group for problem in self.problems for group in problem.groups]
        found += [group for problem in self.problems for group in problem.references]
        return list({id(group.records[0]): group for group in found}.values())


def file_names(problem: Problem) -> list[str]:
    """A name for files of every group, of its label: ``fiarse``, ``fedfibos-algorithm1``; numbered where equal."""
    names: list[str] = []
    for group in problem.groups:
        stem = file_name(group.label)
        names.append(free_name(stem, names))
    return names


def _entry(values: Any, keys: Sequence[str]) -> float | None:
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return None if values is None else float(values)
