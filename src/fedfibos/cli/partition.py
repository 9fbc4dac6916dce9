"""``fedfibos data --show``: how an experiment deals its data to the clients, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import Tensor

from fedfibos.cli.dry_run import how_dealt
from fedfibos.config.experiment import Experiment
from fedfibos.simulation.population import class_counts
from fedfibos.simulation.world import deal, load_published

CLIENTS, CLASSES = 20, 10
"""Rows and columns of counts that a terminal shows."""

LARGEST = 3
"""Classes of a client that are named where there are more than :data:`CLASSES`."""


def show_partition(
    experiment: Experiment,
    data_dir: Path | None,
    picture: Path | None,
    console: Console,
    warn: Callable[[str], None],
) -> None:
    """Print sizes and, where targets are classes, those of each client; draw them where a picture is asked for."""
    split = load_published(experiment, data_dir, warn)
    population = deal(experiment, split, warn)
    scheme, clients = experiment.data.partition.scheme, len(population)
    title = f"{experiment.data.name}, {scheme}, {clients} clients, seed {experiment.seed}"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    tests = population.test_parts.sizes()
    if split.has_classes:
        counts = class_counts(population.parts, split.train.labels, len(split.classes))
        console.print(_table(counts, tests, split.classes))
    else:
        counts = population.parts.sizes().unsqueeze(1)
        console.print(_sizes(counts, tests))
    if len(counts) > CLIENTS:
        console.print(f"and {len(counts) - CLIENTS} clients more: --picture FILE shows all")
    console.print(how_dealt(population), soft_wrap=True)
    if picture is not None:
        from fedfibos.report.partition import draw_partition

        draw_partition(counts, split.classes if split.has_classes else (), picture)
        console.print(f"picture: {picture}", markup=False, highlight=False, soft_wrap=True)


def _sizes(counts: Tensor, tests: Tensor) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in ("client", "train", "test"):
        table.add_column(column, justify="right")
    for client, (train,) in enumerate(counts[:CLIENTS].tolist()):
        table.add_row(*map(str, (client, train, int(tests[client]))))
    return table


def _table(counts: Tensor, tests: Tensor, classes: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    few = len(classes) <= CLASSES
    for column in ("client", "train", "test", "classes", *(classes if few else ())):
        table.add_column(column, justify="right", overflow="fold")
    if not few:
        table.add_column("most of")
    for client, row in enumerate(counts[:CLIENTS].tolist()):
        cells = [client, sum(row), int(tests[client]), sum(number > 0 for number in row)]
        cells += row if few else []
        table.add_row(*map(str, cells), *([] if few else [_most(row, classes)]))
    return table


def _most(row: list[int], classes: tuple[str, ...]) -> str:
    """``shirt 12, coat 7, bag 2``."""
    order = sorted(range(len(row)), key=lambda label: -row[label])[:LARGEST]
    return ", ".join(f"{classes[label]} {row[label]}" for label in order if row[label])
