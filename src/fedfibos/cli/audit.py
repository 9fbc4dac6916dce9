"""``fedfibos audit``: a run's last checkpoint under three ways to evaluate batch normalisation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

from fedfibos.audit import audit, audit_table
from fedfibos.files import write_whole
from fedfibos.reopen import reopen
from fedfibos.types import stream

FILE = "audit.json"


def audit_run(run: Path, batch_size: int, data_dir: Path | None, device: str, console: Console) -> None:
    """Audit a run, print the table and keep the numbers in the run directory."""
    opened = reopen(run, device=device, data_dir=data_dir, warn=lambda text: print(f"warning: {text}", file=sys.stderr))
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
    write_whole(run / FILE, json.dumps(result, indent=1) + "\n")
    console.print(audit_table(result))
    console.print(f"written: {run / FILE}", markup=False, highlight=False, soft_wrap=True)
