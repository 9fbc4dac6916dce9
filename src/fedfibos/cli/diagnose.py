"""``fedfibos diagnose``: what the paper's theory says of a run's last checkpoint, measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fedfibos.diagnose import diagnose, diagnosis_table
from fedfibos.files import write_whole
from fedfibos.record import RecordError
from fedfibos.reopen import reopen
from fedfibos.types import stream

FILE = "diagnosis.json"


def diagnose_run(
    run: Path,
    num_clients: int,
    capacities: Sequence[float],
    data_dir: Path | None,
    device: str,
    console: Console,
) -> None:
    """Diagnose a run on some of its clients, print the tables and keep the numbers in the run directory.

    Args:
        run: The run directory.
        num_clients: How many clients are measured, evenly spread over the ids.
        capacities: γ of the submodels; none: those of the run's fleet below 1.
        data_dir: The data folder.
        device: ``cpu`` or ``cuda``.
        console: Where the tables go.
    """
    opened = reopen(run, device=device, data_dir=data_dir, warn=lambda text: print(f"warning: {text}", file=sys.stderr))
    world, at = opened.world, opened.checkpoint
    population = world.population
    capacities = list(capacities) or [c for c in opened.experiment.federation.capacities if c < 1.0]
    if not capacities:
        raise RecordError(f"{run}: all clients can afford the whole model, give capacities below 1 to look at")
    count = min(num_clients, len(population))
    ids = [i * len(population) // count for i in range(count)]
    clients = [replace(client, data=population.data(client.id)) for client in population.clients(ids, at.round)]
    generator = stream(opened.experiment.seed, "diagnose", at.round)
    result = diagnose(world.method, world.model, at.state, at.params, clients, capacities, generator)
    write_whole(run / FILE, json.dumps(result, indent=1) + "\n")
    console.width = max(console.width, 112)  # narrower, numbers would be cut
    console.print(diagnosis_table(result))
    console.print(f"written: {run / FILE}", markup=False, highlight=False, soft_wrap=True)
