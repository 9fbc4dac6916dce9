"""Run directories read back for a report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedfibos.config.experiment import Experiment
from fedfibos.report.fleets import UNMEASURED, fleet_experiment, is_fleet
from fedfibos.runs.archive import folder_of
from fedfibos.runs.files import CONFIG, ENVIRONMENT, EVALUATION, FINAL, PARTITION, ROUNDS
from fedfibos.runs.final import read_final
from fedfibos.runs.measures import Measure, measures_of
from fedfibos.runs.reading import RecordError, check
from fedfibos.runs.record import RunDirectory
from fedfibos.runs.shapes import DEALT_SHAPE, ENVIRONMENT_SHAPE, LATER_SHAPE, SPREAD_SHAPE
from fedfibos.runs.stored import experiment_of, is_stored, read_object, settings_of, stored_below

SEED = re.compile(r"seed-\d+")
"""The last folder of a study's run, below those of its variants."""


@dataclass(frozen=True)
class Point:
    """One evaluation of a run.

    Attributes:
        round: Rounds done.
        bytes: Sent since the start, both ways.
        evaluation: The ``evaluation`` object of the round's line.
    """

    round: int
    bytes: int
    evaluation: Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """One run directory.

    Attributes:
        name: The directory as the report calls it: from the folder that was asked for, without what lies above.
        experiment: What was run.
        environment: Where: content of ``environment.json``.
        rounds: Lines of ``rounds.jsonl``.
        final: Content of ``final.json``; None where the run is not finished.
        dealt: Content of ``partition.json``; None where there is none (older records, fleets).
    """

    name: str
    experiment: Experiment
    environment: Mapping[str, Any]
    rounds: tuple[Mapping[str, Any], ...]
    final: Mapping[str, Any] | None
    dealt: Mapping[str, Any] | None = None

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """The folders of its name without the seed's: of a study's run the variants, ``("high", "fiarse")``."""
        parts = self.name.split("/")
        return tuple(parts[:-1] if SEED.fullmatch(parts[-1]) else parts)

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """``final``, the first metric's results also as ``global`` and ``local``, whatever it is called."""
        final = self.final or {}
        return {**final, "global": final.get(self.measure.global_key), "local": final.get(self.measure.local_key)}

    @cached_property
    def measure(self) -> Measure:
        """The metric that comes first."""
        return measures_of(self.points[-1].evaluation if self.points else {})[0]

    @property
    def measured(self) -> bool:
        """Whether it was ever evaluated; a Flower app without a test set is not."""
        return bool(self.points)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The evaluations, in order."""
        points, sent = [], 0
        for record in self.rounds:
            sent += record["bytes"]["down"] + record["bytes"]["up"]
            if "evaluation" in record:
                points.append(Point(record["round"], sent, record["evaluation"]))
        return tuple(points)


def find_runs(paths: Iterable[Path]) -> dict[Path, str]:
    """The run directories among and below those folders and archives, each once, and the name of each.

    Raises:
        RecordError: A folder or archive that is not there, holds no run, or is damaged.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        below = [config.parent for config in stored_below(path, CONFIG)]
        if not below:
            lacks = f"holds no {CONFIG}" if path.is_dir() else "is another file" if path.exists() else "does not exist"
            raise RecordError(f"{path} must be a run directory, a folder of some or an archive of one, it {lacks}")
        folder = folder_of(path.resolve()) if path.is_file() else path.resolve()
        top = folder.parent
        if SEED.fullmatch(folder.name):
            top = top.parent  # a seed alone says nothing of the run
        found |= {run.resolve(): top for run in below}
    names = {run: run.relative_to(top).as_posix() for run, top in found.items()}
    if len(set(names.values())) == len(names):
        return names
    above = os.path.commonpath(found.values())  # folders of one name in several places
    return {run: run.relative_to(above).as_posix() for run in found}


def read_record(path: Path, name: str | None = None) -> Record:
    """Read one run directory.

    Args:
        path: The directory.
        name: What the report calls it; None: the directory's own name.

    Raises:
        RecordError: A file is missing or damaged; in one line.
        ExperimentError: Its configuration is not one of this version.
    """
    settings = settings_of(path)
    rounds: tuple[Mapping[str, Any], ...] = tuple(RunDirectory(path).rounds())
    fleet = is_fleet(settings)
    if fleet:
        experiment = fleet_experiment(settings, rounds, str(path / CONFIG))
        rounds = tuple(_filled(record) for record in rounds)
    else:
        experiment = experiment_of(path)
    for number, record in enumerate(rounds, start=1):
        if "evaluation" in record:
            check(f"{path / ROUNDS}: line {number}", record["evaluation"], SPREAD_SHAPE)
    final: Mapping[str, Any] | None = None
    if is_stored(path / FINAL):
        final = read_final(path / FINAL, fleet=fleet)
    if final is not None and fleet:
        final = {**final, "method": experiment.method.name, "seed": experiment.seed}
    if final is not None and len(rounds) != experiment.federation.rounds:
        got = f"got {len(rounds)}" if is_stored(path / ROUNDS) else "there is no such file"
        raise RecordError(
            f"{path / ROUNDS}: must have the {experiment.federation.rounds} rounds of a finished run, {got}"
        )
    if final is not None and is_stored(path / EVALUATION):
        final = _completed(final, read_object(path / EVALUATION, LATER_SHAPE))
    dealt = read_object(path / PARTITION, DEALT_SHAPE) if is_stored(path / PARTITION) else None
    environment = read_object(path / ENVIRONMENT, ENVIRONMENT_SHAPE)
    return Record(name or path.name, experiment, environment, rounds, final, dealt)


def _filled(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A round of a fleet, with the entries of its evaluation that only a simulation always has."""
    if "evaluation" not in record:
        return record
    return {**record, "evaluation": {**UNMEASURED, **record["evaluation"]}}


def _completed(final: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
    """Results that lack the adjusted accuracy, with what ``fedfibos evaluate`` measured at the last round."""
    own = measures_of(final)[0].local_key
    local = final[own]
    if "adjusted" in local or later["round"] != final.get("rounds"):
        return final
    found = later["local"].get("adjusted")
    if found is None:
        return final
    by_capacity = {key: {"last": value} for key, value in found["by_capacity"].items()}
    return {
        **final,
        own: {**local, "adjusted": {"mean": {"last": found["mean"]}, "by_capacity": by_capacity}},
    }
