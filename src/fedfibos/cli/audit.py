"""``fedfibos audit``: a run's last checkpoint under three ways to evaluate batch normalisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedfibos.analysis.audit import WAYS, audit
from fedfibos.cli.terminal import warn
from fedfibos.common.atomic_files import write_whole
from fedfibos.common.formatting import percent
from fedfibos.common.streams import stream
from fedfibos.runs.files import AUDIT
from fedfibos.simulation.reopen import reopen


def audit_run(run: Path, batch_size: int, data_dir: Path | None, device: str, console: Console) -> None:
    """Audit a run, print the table and keep the numbers in the run directory."""
    opened = reopen(run, device=device, data_dir=data_dir, warn=warn)
    world, at = opened.world, opened.checkpoint
    population = world.population
    result = audit(
        world.method,
        world.model,
        at.state,
        at.params,
        population.everyone(at.round),
        world.split.test,
        population.test_parts,
        population.calibration(opened.experiment.evaluation.recalibration_samples),
        stream(opened.experiment.seed, "audit"),
        batch_size,
    )
    console.print(audit_table(result))
    write_whole(run / AUDIT, json.dumps(result, indent=1) + "\n")
    console.print(f"written: {run / AUDIT}", markup=False, highlight=False, soft_wrap=True)


def audit_table(result: Mapping[str, Any]) -> Table:
    """The numbers of :func:`audit` for a terminal."""
    table = Table(
        title=f"Accuracy at round {result['round']} on {result['examples']} test examples, batches of "
        f"{result['batch_size']}, by the statistics that batch normalisation uses"
    )
    for heading in ("capacity", "batch's own, client after client", "batch's own, shuffled", "of training data"):
        table.add_column(heading, justify="right")
    for capacity, found in result["capacities"].items():
        table.add_row(f"{float(capacity):g}", *(percent(found[way]) for way in WAYS))
    return table
