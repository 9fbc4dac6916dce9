"""``fedfibos audit``: a run's last checkpoint under the protocols that papers evaluate by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedfibos.analysis.audit import CLASSES, TestData, audit, check_task
from fedfibos.cli.terminal import warn
from fedfibos.common.atomic_files import write_whole
from fedfibos.common.formatting import percent
from fedfibos.common.streams import stream
from fedfibos.runs.files import AUDIT
from fedfibos.simulation.reopen import reopen

HEADINGS = {
    "none": "accuracy",
    "recalibrated": "statistics of training data",
    "client_ordered": "of the batch, client after client",
    "shuffled": "of the batch, shuffled",
}
TITLES = {"served": "As served", "trained": "After one round of the client's local training"}
ROWS = {"all": "all classes", "own": "the client's own"}


def audit_run(
    run: Path, batch_size: int, num_clients: int, data_dir: Path | None, device: str, console: Console
) -> None:
    """Audit a run, print the tables and keep the numbers in the run directory."""
    opened = reopen(run, device=device, data_dir=data_dir, warn=warn)
    world, at = opened.world, opened.checkpoint
    check_task(world.model.task)
    population, examples = world.population, world.split.test
    # A schedule may end at a rate of nothing: a client trains for itself at the rate that the run began with.
    unscheduled = population.local.with_levels(population.capacities.table)
    result = audit(
        world.method,
        world.model,
        at.state,
        at.served,
        [replace(client, local=unscheduled) for client in population.everyone(at.round)],
        population.data,
        TestData(
            examples,
            population.test_parts,
            population.class_priors(len(examples), len(world.split.classes)),
            population.calibration(opened.experiment.evaluation.recalibration_samples),
        ),
        stream(opened.experiment.seed, "audit"),
        batch_size,
        num_clients,
    )
    for table in audit_tables(result):
        console.print(table)
    write_whole(run / AUDIT, json.dumps(result, indent=1) + "\n")
    console.print(f"written: {run / AUDIT}", markup=False, highlight=False, soft_wrap=True)


def audit_tables(result: Mapping[str, Any]) -> list[Table]:
    """The numbers of :func:`audit` for a terminal: as served, and after local training."""
    tables = []
    for when, title in TITLES.items():
        table = Table(
            title=f"{title}, round {result['round']}: accuracy on the clients' own test examples, batches of "
            f"{result['batch_size']}"
        )
        for heading in ("capacity", "clients", "classes", *(HEADINGS[way] for way in result["statistics"])):
            table.add_column(heading, justify="left" if heading == "classes" else "right")
        for capacity, found in result["capacities"].items():
            first = (f"{float(capacity):g}", str(len(found["clients"])))
            for classes in CLASSES:
                values = (percent(found[when][way][classes]) for way in result["statistics"])
                table.add_row(*(first if classes == "all" else ("", "")), ROWS[classes], *values)
        tables.append(table)
    return tables
