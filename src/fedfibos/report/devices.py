"""A study's fleet in classes of devices: what each held under each method, and how well that answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.common.statistics import Spread, spread
from fedfibos.report.groups import Group, Problem
from fedfibos.report.records import Record
from fedfibos.report.table import Table, row
from fedfibos.report.tables import NONE, STATISTICS, headed, written

ACCURACIES = {"global": ("global", "submodels"), "local": ("local", "by_capacity")}
"""Row -> where in a record's results the first metric is by capacity."""

FEW = 10**5
"""Fewer operations are told in thousands."""


def by_device(problem: Problem, slug: str, summary: str = "last") -> Table:
    """Accuracies of each class of devices, beside what it held."""
    names = [device.name for device in problem.experiment.federation.devices]
    rows, measure = [], problem.measure
    unit, many = _unit(problem, names)
    for group in problem.groups:
        held = {name: [_held(record, name) for record in group.records] for name in names}
        rows.append(row(group.label, "capacity", *(_capacities(held[name]) for name in names)))
        for title, where in ACCURACIES.items():
            found = [_accuracy(group, name, where, summary) for name in names]
            rows.append(row(group.label, title, *(written(value, measure) for value in found)))
        macs = [spread(of["macs"] / many for of in held[name] if "macs" in of) for name in names]
        rows.append(row(group.label, unit, *(NONE if each is None else each.text(digits=2) for each in macs)))
    note = (
        f"{problem.scale}. Capacity: the largest that the device can hold. A device that is left out can hold none: "
        f"nothing was trained on its data, and it is in no mean. {unit}: an example forward, first round's submodel."
    )
    what = headed(measure, "each device's submodel")
    title = f"{what}, {STATISTICS[summary]}: {problem.label}"
    return Table(f"devices-{slug}", title, ("method", "", *names), tuple(rows), note, words=2)


def _held(record: Record, name: str) -> Mapping[str, Any]:
    """What a class held in a run, as ``final.json`` says."""
    of: Mapping[str, Any] = (record.final or {}).get("devices", {}).get(name, {})
    return of


def _unit(problem: Problem, names: Sequence[str]) -> tuple[str, float]:
    """In what operations are told: thousands where some device has few."""
    held = [_held(record, name) for group in problem.groups for record in group.records for name in names]
    few = min((of["macs"] for of in held if "macs" in of), default=FEW) < FEW
    return ("k MACs", 1e3) if few else ("M MACs", 1e6)


def _capacities(held: list[Mapping[str, Any]]) -> str:
    """Those of all seeds, which the largest client's examples can make differ."""
    return ", ".join(f"{c:g}" for c in sorted({of["capacity"] for of in held if "capacity" in of})) or "left out"


def _accuracy(group: Group, name: str, where: tuple[str, ...], summary: str) -> Spread | None:
    """Over seeds: the accuracy of the capacity that the class had."""
    found = []
    for record in group.records:
        of: Any = record.results
        for key in where:
            of = of.get(key) or {}
        found.append(of.get(str(_held(record, name).get("capacity")), {}).get(summary))
    return spread(found)
