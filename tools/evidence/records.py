"""The runs of a study by cell, method and seed; means, paired differences and what they tell."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedfibos.common.statistics import Spread, spread
from fedfibos.report.records import Record, read_record
from fedfibos.runs.files import CONFIG, DIAGNOSIS, FINAL
from fedfibos.runs.stored import stored_below, stored_bytes

ACCURACIES: Mapping[str, tuple[str, ...]] = {
    "global, full": ("global_accuracy", "full", "last"),
    "global, submodels": ("global_accuracy", "submodels", "mean", "last"),
    "smallest (γ = .0625)": ("global_accuracy", "submodels", "0.0625", "last"),
    "local": ("local_accuracy", "mean", "last"),
    "local, adjusted": ("local_accuracy", "adjusted", "mean", "last"),
}
FULL, SUBMODELS, SMALLEST, LOCAL, ADJUSTED = ACCURACIES.values()
CAPACITIES = ("1.0", "0.5", "0.25", "0.125", "0.0625")

MAIN = ("high", "non-uniform")
"""The cell in which everything was run."""

DIRICHLET = ("dirichlet", "non-uniform")
"""The other cell of nested steps, and that of the deep network."""

DIRICHLET_UNIFORM = ("dirichlet", "uniform")
"""The same with as many clients of each capacity."""

CELLS = (MAIN, DIRICHLET, DIRICHLET_UNIFORM)
"""The cells of nested steps."""

Cell = tuple[str, str]
"""Split and capacity mix."""


@dataclass(frozen=True)
class Study:
    """All finished runs of the study: (split, mix) -> method -> records by seed."""

    data: str
    splits: Mapping[str, str]
    cells: Mapping[Cell, Mapping[str, Sequence[Record]]]
    ceilings: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    tuning: Mapping[str, Mapping[float, Record | None]] = field(default_factory=dict)
    diagnoses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    precisions: Mapping[str, Sequence[Record]] = field(default_factory=dict)

    def in_order(self) -> list[Cell]:
        """The cells, split by split."""
        return sorted(self.cells, key=lambda cell: (list(self.splits).index(cell[0]), cell[1]))

    def where(self, cell: Cell) -> str:
        """A cell in words."""
        return f"{self.splits[cell[0]]}, {cell[1]}"

    def numbers(self, cell: Cell, method: str, *keys: str) -> dict[int, float]:
        """An entry of ``final.json`` by seed, where it has it."""
        found = {r.experiment.seed: entry(r.final, keys) for r in self.cells.get(cell, {}).get(method, ())}
        return {seed: value for seed, value in found.items() if value is not None}

    def spread(self, cell: Cell, method: str, *keys: str) -> Spread | None:
        """The same over seeds."""
        return spread(self.numbers(cell, method, *keys).values())

    def difference(self, cell: Cell, one: str, other: str, *keys: str) -> Spread | None:
        """``one`` minus ``other``, seed by seed: both have the same partition, fleet and cohorts."""
        return spread(self._gaps(cell, one, other, *keys).values())

    def pooled(self, one: str, other: str, *keys: str) -> Spread | None:
        """The same, averaged over all cells that have both; over the seeds that all of these have.

        The cells of a seed are no independent samples: they share initial values and cohorts, and partitions.
        """
        gaps = [found for cell in self.cells if (found := self._gaps(cell, one, other, *keys))]
        seeds = set.intersection(*(set(found) for found in gaps)) if gaps else set()
        return spread(math.fsum(found[seed] for found in gaps) / len(gaps) for seed in sorted(seeds))

    def num_cells(self, one: str, other: str) -> int:
        """How many cells have both."""
        return sum(one in methods and other in methods for methods in self.cells.values())

    def _gaps(self, cell: Cell, one: str, other: str, *keys: str) -> dict[int, float]:
        a, b = self.numbers(cell, one, *keys), self.numbers(cell, other, *keys)
        return {seed: a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())}


def load_cifar10(small: Path) -> Study:
    """The CIFAR-10 study, from ``results/small``."""
    splits = {"high": "two classes a client", "low": "five classes a client", "dirichlet": "Dirichlet 0.3"}
    diagnoses = {}
    for found in stored_below(small / "cifar10", DIAGNOSIS):
        if found.parent.name == "seed-0":
            diagnoses[found.parts[-3]] = json.loads(stored_bytes(found))
    precisions: dict[str, list[Record]] = {}
    for run in _finished(small / "cifar10-precision"):
        precisions.setdefault(run.parent.name, []).append(read_record(run))
    cells = _cells(small, "cifar10", "cifar10-prior", "cifar10-readings")
    tuning = _tuning(small / "cifar10-tuning")
    return Study("CIFAR-10", splits, cells, _ceilings(small), tuning, diagnoses, precisions)


def _ceilings(small: Path) -> dict[str, list[Record]]:
    """Split -> the runs of CIFAR-10 in which every client has the whole model."""
    ceilings: dict[str, list[Record]] = {}
    for run in _finished(small / "cifar10-ceiling"):
        ceilings.setdefault(run.parts[-4], []).append(read_record(run))
    return ceilings


def load_dense(small: Path) -> Study:
    """The confirmation of estimates on all parameters; its names of methods are those of the other studies."""
    splits = {"high": "two classes a client", "low": "five classes a client", "dirichlet": "Dirichlet 0.3"}
    names = {"fedfibos": "fedfibos-none", "fedfibos-dense": "fedfibos-none-dense"}
    cells = {
        cell: {names.get(method, method): records for method, records in methods.items()}
        for cell, methods in _cells(small, "cifar10-dense").items()
    }
    return Study("CIFAR-10", splits, cells)


def load_nested(small: Path) -> Study:
    """Nested steps, saliency and channels, beside what the other studies have of the same cells."""
    splits = {"high": "two classes a client", "low": "five classes a client", "dirichlet": "Dirichlet 0.3"}
    names = {"fedfibos": "fedfibos-none"}  # the default has another name in the study with new seeds
    cells: dict[Cell, dict[str, list[Record]]] = {}
    for study in ("cifar10", "cifar10-prior", "cifar10-dense", "cifar10-nested"):
        for cell, methods in _cells(small, study).items():
            for method, records in methods.items():
                name = names.get(method, method) if study == "cifar10-dense" else method
                cells.setdefault(cell, {}).setdefault(name, []).extend(records)
    kept = {cell: methods for cell, methods in cells.items() if cell[0] in splits}
    return Study("CIFAR-10", splits, kept, _ceilings(small), _tuning(small / "cifar10-nested-tuning"))


def load_devices(small: Path) -> Study:
    """CIFAR-10 on devices with limits of their own."""
    return Study("CIFAR-10", {"high": "two classes a client"}, _cells(small, "cifar10-devices"))


def load_normalised(small: Path) -> Study:
    """The same with GroupNorm."""
    splits = {"high": "two classes a client", "low": "five classes a client", "dirichlet": "Dirichlet 0.3"}
    return Study("CIFAR-10", splits, _cells(small, "cifar10-norm"), tuning=_tuning(small / "cifar10-norm-tuning"))


def load_deep(small: Path) -> Study:
    """CIFAR-10 with a deep network that has batch normalisation; its default has no prior."""
    cells = {
        cell: {"fedfibos-none" if method == "fedfibos" else method: records for method, records in methods.items()}
        for cell, methods in _cells(small, "cifar10-resnet").items()
    }
    return Study("CIFAR-10", {"dirichlet": "Dirichlet 0.3"}, cells)


def load_cifar100(small: Path) -> Study:
    """CIFAR-100."""
    splits = {"high": "twenty classes a client", "low": "fifty classes a client", "dirichlet": "Dirichlet 0.3"}
    return Study("CIFAR-100", splits, _cells(small, "cifar100"))


def load_ag_news(small: Path) -> Study:
    """AG News."""
    cells = _cells(small, "ag_news", "ag_news-readings")
    return Study("AG News", {"dirichlet": "Dirichlet 1.0"}, cells, tuning=_tuning(small / "ag_news-tuning"))


def load_ag_news_tuned(small: Path) -> Study:
    """AG News, each method at the rate that is best for it on validation texts."""
    return Study("AG News", {"dirichlet": "Dirichlet 1.0"}, _cells(small, "ag_news-tuned"))


def load_pretrained(small: Path) -> Study:
    """Channels of a pretrained encoder, beside the masks and slices of the same cell."""
    cells = _cells(small, "ag_news", "ag_news-readings", "ag_news-channels")
    return Study("AG News", {"dirichlet": "Dirichlet 1.0"}, cells)


def load_pretrained_images(small: Path) -> Study:
    """Channels of a pretrained network for images."""
    return Study("CIFAR-100", {"dirichlet": "Dirichlet 0.3"}, _cells(small, "cifar100-pretrained"))


def load_ablation(small: Path) -> Study:
    """Which channels or how many."""
    return Study("CIFAR-10", {"high": "two classes a client"}, _cells(small, "cifar10-channels-ablation"))


def load_heterogeneity(small: Path, splits: Mapping[str, str]) -> Study:
    """Digits, by split; all capacities are non-uniform."""
    cells: dict[Cell, dict[str, list[Record]]] = {}
    for run in _finished(small / "digits-heterogeneity"):
        split, method = run.parts[-3:-1]
        cells.setdefault((split, "non-uniform"), {}).setdefault(method, []).append(read_record(run))
    return Study("Digits", splits, cells)


def load_settings(small: Path, cell: Cell) -> Study:
    """Digits, one setting changed at a time."""
    methods: dict[str, list[Record]] = {}
    for run in _finished(small / "digits-settings"):
        methods.setdefault(run.parts[-2], []).append(read_record(run))
    return Study("Digits", {cell[0]: "two classes a client"}, {cell: methods})


def load_digits_tuning(small: Path) -> dict[str, dict[float, float]]:
    """Method -> learning rate -> accuracy over the submodels on held-out training examples."""
    tuning: dict[str, dict[float, float]] = {}
    for run in _finished(small / "digits-heterogeneity-tuning"):
        record = read_record(run)
        found = entry(record.final, SUBMODELS)
        assert found is not None
        tuning.setdefault(run.parts[-3], {})[record.experiment.local.lr] = found
    return tuning


def _cells(small: Path, *studies: str) -> dict[Cell, dict[str, list[Record]]]:
    cells: dict[Cell, dict[str, list[Record]]] = {}
    for study in studies:
        for run in _finished(small / study):
            split, mix, method = run.parent.relative_to(small / study).parts
            cells.setdefault((split, mix), {}).setdefault(method, []).append(read_record(run))
    return cells


def _tuning(folder: Path) -> dict[str, dict[float, Record | None]]:
    """Method -> learning rate -> its run; None where it diverged."""
    tuning: dict[str, dict[float, Record | None]] = {}
    for config in stored_below(folder, CONFIG):
        record = read_record(config.parent)
        if record.final is None and not diverged(record.rounds):
            raise SystemExit(f"tools/findings.py: {config.parent} is neither finished nor did it diverge")
        found = record if record.final is not None else None
        tuning.setdefault(config.parts[-4], {})[record.experiment.local.lr] = found
    return tuning


def diverged(rounds: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run that ended early was leaving for infinity: its last loss is huge, or an update was not finite.

    A round that was skipped for want of a usable upload has no loss.
    """
    last = rounds[-1]
    return last.get("loss", 0.0) > 1000 * rounds[0]["loss"] or any(
        "not finite" in reason for reason in last["rejected"].values()
    )


def _finished(folder: Path) -> list[Path]:
    return [final.parent for final in stored_below(folder, FINAL)]


def entry(values: Any, keys: Iterable[str]) -> float | None:
    """An entry of nested tables, where it is there."""
    for key in keys:
        values = values.get(key) if values is not None else None
    return None if values is None else float(values)


def last_evaluation(study: Study, cell: Cell, method: str) -> list[Mapping[str, Any]]:
    """The last evaluation of every seed."""
    return [record.points[-1].evaluation for record in study.cells[cell].get(method, ())]
