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
from fedfibos.report.groups import (
    DATA_NAMES,
    METHOD_NAMES,
    Group,
    Problem,
    Sorted,
    partition_label,
)
from fedfibos.report.table import Table, row
from fedfibos.report.tables import ACCURACIES, percent

NO_RUN = "no run"


def reported() -> Mapping[str, Any]:
    """The content of ``paper.toml``: what the paper prints."""
    return tomllib.loads(files(__package__).joinpath("paper.toml").read_text(encoding="utf-8"))


def comparisons(content: Sorted) -> list[tuple[Table, bool]]:
    """The paper's tables beside our runs, and whether there is any for it.

    One row a cell and method and, where there are several, a row for each of our versions.
    """
    return [_comparison(content, table) for table in reported()["tables"]]


def _comparison(content: Sorted, table: Mapping[str, Any]) -> tuple[Table, bool]:
    rows, any_run = [], False
    for cell in table["rows"]:
        capacities = cell.get("capacities") or table["capacities"]
        data = DATA_NAMES[cell["data"]]
        setting = f"{data} {cell['setting']}: {partition_label(Partition(**cell['partition']))}, {capacities}"
        for method in [name for name in METHODS if name in cell]:
            local, whole = cell[method]
            matches = matching(content, cell, capacities, method)
            if not matches:
                name = METHOD_NAMES.get(method, METHODS[method].__name__)
                rows.append(row(setting, name, f"{local:.2f}", NO_RUN, f"{whole:.2f}", NO_RUN, NO_RUN, ""))
            any_run |= bool(matches)
            for problem, group in matches:
                full, submodels, own = (percent(group.over_seeds(*path, "last")) for path in ACCURACIES.values())
                seeds = f"{len(group.records)} seed{'s' if len(group.records) > 1 else ''}; {problem.scale}"
                rows.append(row(setting, group.label, f"{local:.2f}", own, f"{whole:.2f}", submodels, full, seeds))
    compared = Table(
        table["slug"],
        f"The paper's {table['name']} beside our runs: {table['caption']}",
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
        "Accuracy in %. The paper defines neither of its accuracies and gives no spread; ours are the last evaluation, "
        "mean ± sd over seeds, as the report defines them. Where model or rounds are not the paper's (ResNet-18 or "
        "RoBERTa-base; 800 or 300 rounds) ours is no reproduction: only the order of methods can be compared.",
        words=2,
        trailing_words=1,
    )
    return compared, any_run


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
