"""Runs sorted into problems (what is to be learnt, by whom) and groups (one method on one problem, several seeds).

Only runs that differ in nothing but the seed are averaged; methods are compared within a problem only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import tomli_w

from fedfibos.config.choices import MethodChoice
from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.config.idle import without_idle
from fedfibos.config.sections import Checkpoints, Evaluation, Run
from fedfibos.methods import METHODS
from fedfibos.report.groups import Group, Problem, Sorted
from fedfibos.report.labels import add_scales, fleet_label, method_label, problem_label, scale_label, tell_apart
from fedfibos.report.records import Record
from fedfibos.runs.reading import RecordError
from fedfibos.server.settings import PLAIN
from fedfibos.training import LocalTraining

FLOAT32 = 4
"""Bytes of an exact score."""


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
        code = _own_code(record, *_of_the_problem(chosen))
        groups = problems.setdefault(to_toml(_problem(chosen)) + code, {})
        groups.setdefault(to_toml(_group(chosen)) + _own_code(record, chosen.method.name), []).append(record)
    keys = list(problems)
    labels = [problem_label(_first(problems[k]).experiment) for k in keys]
    labels = tell_apart(add_scales(labels, _scales(problems)), keys)
    built = []
    for key, label in zip(keys, labels, strict=True):
        members = {k: sorted(rs, key=lambda r: r.experiment.seed) for k, rs in problems[key].items()}
        names = tell_apart([method_label(rs[0].experiment) for rs in members.values()], list(members))
        groups_ = [Group(name, tuple(rs)) for name, rs in zip(names, members.values(), strict=True)]
        order = {name: position for position, name in enumerate(METHODS)}
        groups_.sort(key=lambda group: (order.get(group.experiment.method.name, len(order)), group.label))
        built.append(Problem(label, scale_label(groups_[0].experiment), tuple(groups_)))
    built = _with_references(built)
    built.sort(key=lambda problem: (problem.label, problem.scale))
    return Sorted(tuple(built), tuple(r for r in records if r.final is None), tuple(notes), unmeasured)


def _of_the_problem(experiment: Experiment) -> tuple[str, ...]:
    """Names that say what is learnt, and may be the user's own code."""
    data = experiment.data
    return data.name, data.partition.scheme, experiment.task.name, experiment.model.name


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
    federation = replace(experiment.federation, capacities={1.0: 1.0}, assigned=None, devices=())
    return to_toml(replace(_problem(experiment), federation=federation))


def _group(experiment: Experiment) -> Experiment:
    """Everything that runs of one group have in common."""
    data = replace(experiment.data, partition=without_idle(experiment.data.partition))
    # Where scores live and when checkpoints are written changes nothing; how many bytes a score has does.
    run = (
        Run()
        if experiment.run.score_bytes == FLOAT32
        else Run(score_home="disk", score_bytes=experiment.run.score_bytes)
    )
    return replace(experiment, seed=0, data=data, run=run, checkpoint=Checkpoints())


def _problem(experiment: Experiment) -> Experiment:
    """Everything that groups of one problem have in common; how accuracy is measured included."""
    evaluation = experiment.evaluation
    return replace(
        _group(experiment),
        method=MethodChoice("fedavg"),
        local=LocalTraining(),
        server=PLAIN,
        privacy=None,
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
        code = _own_code(record, *_of_the_problem(chosen), chosen.method.name)
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


def _scales(problems: Mapping[str, Mapping[str, Sequence[Record]]]) -> list[str]:
    return [scale_label(_first(groups).experiment) for groups in problems.values()]
