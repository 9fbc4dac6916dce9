"""``fedfibos evaluate``: the accuracies of a run's last checkpoint, measured anew."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedfibos.analysis.accuracy import evaluate
from fedfibos.cli.terminal import warn
from fedfibos.common.atomic_files import write_whole
from fedfibos.runs.checkpoint import At
from fedfibos.runs.environment import describe
from fedfibos.runs.files import EVALUATION
from fedfibos.runs.measures import measures_of
from fedfibos.simulation.reopen import reopen
from fedfibos.simulation.world import setting_of


def evaluate_run(run: Path, data_dir: Path | None, device: str, console: Console, which: At = "last") -> None:
    """Evaluate a run's checkpoint as the run itself would, print the accuracies and keep them in the run directory.

    For a run whose last evaluation is older than its checkpoint, or lacks a number that it would have today.
    """
    opened = reopen(run, device=device, data_dir=data_dir, warn=warn, at=which)
    world, at, experiment = opened.world, opened.checkpoint, opened.experiment
    setting, population = setting_of(experiment, world), world.population
    result = evaluate(
        world.method,
        world.model,
        at.state,
        at.served,
        population.everyone(at.round),
        population.test_parts,
        lambda params, trials: (setting.hits(params, trial) for trial in trials),
        experiment.evaluation.submodel_clients,
    )
    written = {"round": at.round, **result, "environment": describe(device)}
    submodels, local = result["global"]["submodels"], result["local"]
    first = measures_of(result)[0]
    title = f"{experiment.method.name}, seed {experiment.seed}, after round {at.round}: {first.directed}"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    table = Table()
    parts = {"local": local, **({"local, adjusted": local["adjusted"]} if "adjusted" in local else {})}
    for heading in ("capacity", "global", *parts):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("full model", first.text(result["global"]["full"]), *("–" for _ in parts), end_section=True)
    for key in [*local["by_capacity"], "mean"]:
        own = [part["mean"] if key == "mean" else part["by_capacity"][key] for part in parts.values()]
        table.add_row(key, first.text(submodels[key]), *map(first.text, own))
    console.print(table)
    write_whole(run / EVALUATION, json.dumps(written, indent=1) + "\n")
    console.print(f"written: {run / EVALUATION}", markup=False, highlight=False, soft_wrap=True)
