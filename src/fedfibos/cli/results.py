"""The table at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from fedfibos.common.formatting import count_of, duration, percent
from fedfibos.runs.classes import rejected_lines, skipped_line
from fedfibos.runs.measures import Measure, measures_of
from fedfibos.runs.record import RunDirectory

SUMMARIES = {"last": "last evaluation", "last20": "mean of the last 20 evaluations", "best": "best evaluation"}
"""Keys of an accuracy's summary in ``final.json``, and what they are."""


def show_results(final: Mapping[str, Any], out: Path, console: Console, summary: str = "last") -> None:
    """Print the metrics of ``final.json``, the totals and where the run directory is.

    Args:
        final: The content of ``final.json``.
        out: The run directory.
        console: Where to.
        summary: A key of :data:`SUMMARIES`.
    """
    first, *others = measures_of(final)
    table = Table(title=f"{final['method']}, seed {final['seed']}, {count_of(final['rounds'], 'round')}")
    table.add_column(first.words if first.better == "higher" else f"{first.words}, lower is better", no_wrap=True)
    heading = mean_heading(evaluations_of(out)) if summary == "last20" else SUMMARIES[summary]
    table.add_column(heading, justify="right", no_wrap=True)

    def add(name: str, curve: Mapping[str, float | None], measure: Measure = first) -> None:
        table.add_row(name, measure.text(curve[summary]))

    whole, local = final[first.global_key], final[first.local_key]
    submodels = whole["submodels"]
    add("global, full model", whole["full"])
    add("global, submodels: mean", submodels["mean"])
    for capacity in [key for key in submodels if key != "mean"]:
        add(f"  capacity {capacity}", submodels[capacity])
    add("local: mean over clients", local["mean"])
    for capacity, curve in local["by_capacity"].items():
        add(f"  capacity {capacity}", curve)
    if "adjusted" in local:
        add("local, adjusted: mean", local["adjusted"]["mean"])
    for measure in others:
        if measure.name in final:
            add(f"global, full: {measure.words}", final[measure.name]["full"], measure)
    console.print(table)
    if (majority := final.get("majority_share")) is not None:
        line = f"{percent(majority)} of the test examples are of the largest class: always answering it reaches that"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in _totals(final, out):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if (skipped := skipped_line(final)) is not None:
        console.print(skipped, markup=False, highlight=False, soft_wrap=True)
    show_rejected(final, console)


def _totals(final: Mapping[str, Any], out: Path) -> list[str]:
    """Privacy, bytes and time that a run took, and where it is."""
    rejected = f", {final['rejected']} uploads rejected" if final["rejected"] else ""
    rejected += f", {final['silent']} never came" if "silent" in final else ""
    traffic, private = final["bytes"], []
    if "epsilon" in final:
        private = [f"differential privacy of clients: epsilon {final['epsilon']:.3g} at delta {final['delta']:g}"]
    return [
        *private,
        f"{decimal(traffic['down'])} down, {decimal(traffic['up'])} up, {duration(final['seconds'])}{rejected}",
        f"run directory: {out}",
    ]


def left_out_lines(final: Mapping[str, Any]) -> list[str]:
    """The devices that took no part in a run, a line each."""
    return [
        f"{final['method']}: device {name!r} takes no part: {of['left_out']}"
        for name, of in final.get("devices", {}).items()
        if "left_out" in of
    ]


def show_rejected(final: Mapping[str, Any], console: Console, whose: str = "") -> bool:
    """Print which capacities a run has lost, a line each; whether there are any."""
    lines = rejected_lines(final)
    for line in lines:
        console.print(whose + line, markup=False, highlight=False, soft_wrap=True)
    return bool(lines)


def evaluations_of(run: Path) -> int:
    """How many evaluations a run has on record."""
    return sum("evaluation" in record for record in RunDirectory(run).rounds())


def mean_heading(evaluations: int) -> str:
    """Of a mean over the last 20 evaluations: how many there were."""
    return "mean of last 20" if evaluations >= 20 else f"mean of all {evaluations}"
