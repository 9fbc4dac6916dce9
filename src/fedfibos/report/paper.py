"""The paper's three tables beside our runs of the same cells."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fedfibos.config.capacities import TABLES
from fedfibos.config.idle import without_idle
from fedfibos.data.partition import Partition
from fedfibos.methods import METHODS
from fedfibos.report.groups import Group, Problem, Sorted
from fedfibos.report.labels import DATA_NAMES, METHOD_NAMES, partition_label
from fedfibos.report.table import Cell, Table, row
from fedfibos.report.tables import ACCURACIES, STATISTICS, percent

NO_RUN = "no run"


def paper_figures() -> Mapping[str, Any]:
    """The content of ``paper.toml``: what the paper prints."""
    return tomllib.loads(files(__package__).joinpath("paper.toml").read_text(encoding="utf-8"))


def comparisons(content: Sorted, summary: str = "last") -> tuple[list[Table], list[str]]:
    """The paper's tables beside our runs, without the cells that have none, and which cells these are.

    One row a method and, where there are several, a row for each of our versions.

    Args:
        content: The runs.
        summary: A key of :data:`fedfibos.report.tables.STATISTICS`.
    """
    tables, without = [], []
    for printed in paper_figures()["tables"]:
        rows: list[tuple[Cell, ...]] = []
        for cell in printed["rows"]:
            capacities = cell.get("capacities") or printed["capacities"]
            data = DATA_NAMES[cell["data"]]
            setting = f"{data} {cell['setting']}: {partition_label(Partition(**cell['partition']))}, {capacities}"
            found = _rows(content, cell, capacities, setting, summary)
            rows += found
            if not found:
                without.append(setting)
        if rows:
            tables.append(_table(printed, rows, summary))
    return tables, without


def _rows(
    content: Sorted, cell: Mapping[str, Any], capacities: str, setting: str, summary: str
) -> list[tuple[Cell, ...]]:
    """A cell's methods; nothing where none has a run."""
    rows, any_run = [], False
    for method in [name for name in METHODS if name in cell]:
        local, whole = cell[method]
        matches = matching(content, cell, capacities, method)
        if not matches:
            name = METHOD_NAMES.get(method, METHODS[method].__name__)
            rows.append(row(setting, name, f"{local:.2f}", NO_RUN, f"{whole:.2f}", NO_RUN, NO_RUN, ""))
        any_run |= bool(matches)
        for problem, group in matches:
            full, submodels, own = (percent(group.over_seeds(*path, summary)) for path in ACCURACIES.values())
            seeds = f"{len(group.records)} seed{'s' if len(group.records) > 1 else ''}; {problem.scale}"
            rows.append(row(setting, group.label, f"{local:.2f}", own, f"{whole:.2f}", submodels, full, seeds))
    return rows if any_run else []


def _table(printed: Mapping[str, Any], rows: list[tuple[Cell, ...]], summary: str) -> Table:
    return Table(
        printed["slug"],
        f"The paper's {printed['name']} beside our runs: {printed['caption']}",
        (
            "setting",
            "method",
            "local: paper",
            "ours",
            "global: paper",
            "ours, submodels",
            "ours, full",
            "our runs",
        ),
        tuple(rows),
        "Accuracy in %. The paper defines neither of its accuracies and gives no spread; ours are the "
        f"{STATISTICS[summary]}, "
        "mean ± sd over seeds, as the report defines them. Where model or rounds are not the paper's (ResNet-18 or "
        "RoBERTa-base; 800 or 300 rounds) ours is no reproduction: only the order of methods can be compared.",
        words=2,
        trailing_words=1,
    )


def matching(content: Sorted, cell: Mapping[str, Any], capacities: str, method: str) -> list[tuple[Problem, Group]]:
    """Our groups of one cell and method: same data, same split, same fleet, at any scale."""
    partition = without_idle(Partition(**cell["partition"]))
    return [
        (problem, group)
        for problem in content.problems
        for group in problem.groups
        if problem.experiment.data.name == cell["data"]
        and without_idle(problem.experiment.data.partition) == partition
        and dict(problem.experiment.federation.capacities) == dict(TABLES[capacities])
        and group.experiment.method.name == method
    ]
