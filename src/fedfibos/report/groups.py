"""Runs sorted into problems (what is to be learnt, by whom) and groups (one method on one problem, several seeds).

Only runs that differ in nothing but the seed are averaged; methods are compared within a problem only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import tomli_w

from fedfibos.common.dotted_keys import flat
from fedfibos.common.statistics import Spread, spread
from fedfibos.common.user_code import is_own
from fedfibos.common.validation import shown
from fedfibos.config.capacities import TABLES
from fedfibos.config.choices import MethodChoice
from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.config.idle import without_idle
from fedfibos.config.sections import Evaluation, Run
from fedfibos.data.partition import Partition
from fedfibos.methods import METHODS
from fedfibos.report.fleets import DATA, MODEL
from fedfibos.report.records import Record
from fedfibos.runs.made import DEALT, INITIAL
from fedfibos.runs.reading import RecordError
from fedfibos.training import LocalTraining

DATA_NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "ag_news": "AG News",
    "fashion_mnist": "Fashion-MNIST",
    DATA: "Flower fleet",
}
FLOAT32 = 4
ROUNDING = 0.01
"""Share of the parameters by which tensors that each keep one coordinate may be above a capacity."""

METHOD_NAMES = {"fedbrb": "FedBRB (our interpretation)"}
"""Display names that are not the class's own; FedBRB has no public code, and every table says so."""


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
        """Mean and spread of an entry of ``final.json``: ``over_seeds("global_accuracy", "full", "last")``."""
        return spread(_entry(record.final, keys) for record in self.records)

    def by_seed(self, *keys: str) -> dict[int, float]:
        """The same by seed, of the runs that have it."""
        found = {record.experiment.seed: _entry(record.final, keys) for record in self.records}
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


def sort_records(records: Sequence[Record]) -> Sorted:
    """Sort runs into problems and groups.

    Raises:
        RecordError: Two runs of the same settings and seed with different results.
    """
    finished, notes = _distinct(record for record in records if record.final is not None and record.measured)
    unmeasured = tuple(record for record in records if record.final is not None and not record.measured)
    notes += [f"{record.name} was never evaluated: it is in no table of results" for record in unmeasured]
    problems: dict[str, dict[str, list[Record]]] = {}
    for record in finished:
        chosen = record.experiment
        code = _own_code(record, chosen.data.name, chosen.model.name)
        groups = problems.setdefault(to_toml(_problem(chosen)) + code, {})
        groups.setdefault(to_toml(_group(chosen)) + _own_code(record, chosen.method.name), []).append(record)
    keys = list(problems)
    labels = [problem_label(_first(problems[k]).experiment) for k in keys]
    labels = _told_apart(_with_scales(labels, _scales(problems)), keys)
    built = []
    for key, label in zip(keys, labels, strict=True):
        members = {k: sorted(rs, key=lambda r: r.experiment.seed) for k, rs in problems[key].items()}
        names = _told_apart([method_label(rs[0].experiment) for rs in members.values()], list(members))
        groups_ = [Group(name, tuple(rs)) for name, rs in zip(names, members.values(), strict=True)]
        order = {name: position for position, name in enumerate(METHODS)}
        groups_.sort(key=lambda group: (order.get(group.experiment.method.name, len(order)), group.label))
        built.append(Problem(label, scale_label(groups_[0].experiment), tuple(groups_)))
    built = _with_references(built)
    built.sort(key=lambda problem: (problem.label, problem.scale))
    return Sorted(tuple(built), tuple(r for r in records if r.final is None), tuple(notes), unmeasured)


def _own_code(record: Record, *names: str) -> str:
    """Hashes of the user's own code that a run used under those names, as TOML: other code makes another run."""
    hashes: dict[str, str] = {}
    for made in (record.environment, *record.environment.get("resumed", ())):
        for name, digest in made.get("own", {}).items():
            if name in names and str(digest)[:8] not in hashes.get(name, ""):
                hashes[name] = "+".join(filter(None, (hashes.get(name), str(digest)[:8])))  # a run of both versions
    return f"\n{tomli_w.dumps({'own': hashes})}" if hashes else ""


def _with_references(problems: Sequence[Problem]) -> list[Problem]:
    """FedAvg with another fleet beside the problems that differ in nothing but the fleet, and not by itself."""
    alone = [p for p in problems if all(group.experiment.method.name == "fedavg" for group in p.groups)]
    shown, used = [], set()
    for problem in problems:
        if problem in alone:
            continue
        same = [p for p in alone if _any_fleet(p.experiment) == _any_fleet(problem.experiment)]
        references = [
            replace(group, label=f"{group.label}, {fleet_label(group.experiment)}") for p in same for group in p.groups
        ]
        used |= {id(p) for p in same}
        shown.append(replace(problem, references=tuple(references)))
    return [*shown, *(p for p in alone if id(p) not in used)]


def _any_fleet(experiment: Experiment) -> str:
    """What problems have in common that differ by their fleet."""
    federation = replace(experiment.federation, capacities={1.0: 1.0}, assigned=None)
    return to_toml(replace(_problem(experiment), federation=federation))


def file_names(problem: Problem) -> list[str]:
    """A name for files of every group, of its label: ``fiarse``, ``fedfibos-algorithm1``; numbered where equal."""
    names: list[str] = []
    for group in problem.groups:
        stem = file_name(group.label)
        names.append(free_name(stem, names))
    return names


def file_name(text: str, longest: int = 64) -> str:
    """Lower-case letters and digits with hyphens between them, cut where it is long."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].rstrip("-")


def free_name(stem: str, taken: Sequence[str]) -> str:
    """The name, with a number where it is taken."""
    number = 1
    while (name := stem if number == 1 else f"{stem}-{number}") in taken:
        number += 1
    return name


def problem_label(experiment: Experiment) -> str:
    """``CIFAR-10, 2 classes a client, non-uniform``."""
    name = experiment.data.name
    parts = (DATA_NAMES.get(name, name), partition_label(experiment.data.partition), fleet_label(experiment))
    return ", ".join(parts)


def partition_label(partition: Partition) -> str:
    """How the data are dealt, in words."""
    if partition.scheme == "pathological":
        return f"{partition.classes_per_client} classes a client"
    if partition.scheme in ("iid", "natural"):
        return {"iid": "IID", "natural": "by owner"}[partition.scheme]
    by_class = " by class" if partition.scheme == "dirichlet-by-class" else ""
    return f"Dirichlet {partition.alpha:g}{by_class}"


def fleet_label(experiment: Experiment) -> str:
    """The capacities, by the paper's name or written out."""
    capacities = dict(experiment.federation.capacities)
    for name, table in TABLES.items():
        if capacities == dict(table):
            return name
    if len(capacities) == 1:
        return f"all clients at {next(iter(capacities)):g}"
    return ", ".join(f"{100 * share:g} % at {capacity:g}" for capacity, share in capacities.items())


def scale_label(experiment: Experiment) -> str:
    """``resnet8 (group norm), 100 clients, 10 a round, 100 rounds``."""
    federation, model = experiment.federation, experiment.model
    norm = "" if model.norm in (None, "none") else f" ({model.norm} norm)"
    name = "the app's model" if model.name == MODEL else model.name
    if "checkpoint" in model.options:
        name = PurePath(model.options["checkpoint"]).name
    measured = ", measured on validation examples" if experiment.evaluation.validation else ""
    parts = model.held[0] if len(model.held) == 1 else f"{len(model.held)} parts"
    held = f", {parts} held whole" if model.held else ""
    return (
        f"{name}{norm}{held}, {federation.clients} clients, {federation.cohort} a round, "
        f"{federation.rounds} rounds{measured}"
    )


def method_label(experiment: Experiment) -> str:
    """The method, its preset, and the settings that differ from the preset's.

    Of a user's own method those that differ from its declared defaults; all of them where its code is not found.
    """
    method = experiment.method
    default = _declared(method) if is_own(method.name) else method.left_out()
    changed = [
        f"{k} = {shown(v).strip(chr(39))}" for k, v in method.settings.items() if k not in default or v != default[k]
    ]
    own = method.name.rpartition(":")[2] if is_own(method.name) else METHODS[method.name].__name__
    name = METHOD_NAMES.get(method.name, own)
    return ", ".join([name if method.preset is None else f"{name} “{method.preset}”", *changed])


def _declared(method: MethodChoice) -> dict[str, Any]:
    """The defaults of a user's own method, by setting; none where its code cannot be imported here."""
    declared = {}
    for key in method.settings:
        rest = {k: v for k, v in method.settings.items() if k != key}
        with suppress(ValueError):  # no such code or no such setting any more, or one without a default
            declared[key] = replace(method, settings=rest).resolved().settings.get(key)
    return declared


def _group(experiment: Experiment) -> Experiment:
    """Everything that runs of one group have in common."""
    data = replace(experiment.data, partition=without_idle(experiment.data.partition))
    # Where scores live and when checkpoints are written changes nothing; how many bytes a score has does.
    run = (
        Run()
        if experiment.run.score_bytes == FLOAT32
        else Run(score_home="disk", score_bytes=experiment.run.score_bytes)
    )
    return replace(experiment, seed=0, data=data, run=run)


def _problem(experiment: Experiment) -> Experiment:
    """Everything that groups of one problem have in common; how accuracy is measured included."""
    evaluation = experiment.evaluation
    return replace(
        _group(experiment),
        method=MethodChoice("fedavg"),
        local=LocalTraining(),
        run=Run(),
        evaluation=Evaluation(
            every=evaluation.every,
            submodel_clients=evaluation.submodel_clients,
            recalibration_samples=evaluation.recalibration_samples,
            validation=evaluation.validation,
        ),
    )


def _distinct(records: Iterable[Record]) -> tuple[list[Record], list[str]]:
    """The runs, each setting and seed once."""
    seen: dict[tuple[str, int], Record] = {}
    notes = []
    for record in records:
        chosen = record.experiment
        code = _own_code(record, chosen.data.name, chosen.model.name, chosen.method.name)
        key = (to_toml(_group(chosen)) + code, chosen.seed)
        if key not in seen:
            seen[key] = record
            continue
        before = seen[key]
        assert record.final is not None
        assert before.final is not None
        if record.final["params_sha256"] != before.final["params_sha256"]:
            raise RecordError(
                f"{record.name} and {before.name} are runs of the same experiment and seed with different results: "
                "a report needs one of them"
            )
        notes.append(f"{record.name} has the settings, seed and results of {before.name}: counted once")
    return list(seen.values()), notes


def _first(groups: Mapping[str, Sequence[Record]]) -> Record:
    return next(iter(groups.values()))[0]


def _with_scales(labels: Sequence[str], scales: Sequence[str]) -> list[str]:
    """Labels, with what of their scale is their own where several have one label."""
    told = []
    for label, scale in zip(labels, scales, strict=True):
        others = [s.split(", ") for other, s in zip(labels, scales, strict=True) if other == label]
        own = [piece for piece in scale.split(", ") if any(piece not in other for other in others)]
        told.append(", ".join([label, *own]))
    return told


def _scales(problems: Mapping[str, Mapping[str, Sequence[Record]]]) -> list[str]:
    return [scale_label(_first(groups).experiment) for groups in problems.values()]


def _told_apart(labels: Sequence[str], configs: Sequence[str]) -> list[str]:
    """Labels with the settings that tell equal ones apart."""
    settings = [flat(tomllib.loads(config)) for config in configs]
    told = []
    for i, label in enumerate(labels):
        twins = [j for j in range(len(labels)) if labels[j] == label]
        keys = [k for k in settings[i] if any(settings[j].get(k) != settings[i][k] for j in twins)]
        keys += [k for k in dict.fromkeys(k for j in twins for k in settings[j]) if k not in settings[i]]
        pieces = [f"{k.rpartition('.')[2]} = {shown(settings[i][k]) if k in settings[i] else 'unset'}" for k in keys]
        told.append(", ".join([label, *pieces]))
    return told


def _entry(values: Any, keys: Sequence[str]) -> float | None:
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return None if values is None else float(values)
