"""``fedfibos export``: the submodel of a device class, from a run directory."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.filesize import decimal

from fedfibos.export import describe, export_submodel, submodel_module
from fedfibos.model import has_batch_norm
from fedfibos.reopen import reopen
from fedfibos.submodel import check_capacity
from fedfibos.types import Client

EXAMPLES = 64


def export_run(
    run: Path, capacity: float, client: int | None, out: Path, data_dir: Path | None, console: Console
) -> None:
    """Export the submodel of a capacity (and a client, where submodels are personal) at a run's last checkpoint."""
    check_capacity(capacity)
    opened = reopen(run, data_dir=data_dir, warn=lambda text: print(f"warning: {text}", file=sys.stderr))
    world, at, experiment = opened.world, opened.checkpoint, opened.experiment
    if client is None and world.method.personal:
        raise ValueError(f"submodels of {experiment.method.name} with these settings are personal: pass --client N")
    if client is not None and not 0 <= client < len(world.population):
        raise ValueError(f"--client must be from 0 to {len(world.population) - 1}, got {client}")
    chosen = Client(client or 0, capacity, at.round, experiment.seed, experiment.local)
    submodel = world.method.extract(world.model, at.state, at.params, chosen)
    calibration = None
    if has_batch_norm(world.model.module):
        calibration = world.population.calibration(experiment.evaluation.recalibration_samples)
    module = submodel_module(world.model, at.params, submodel, calibration)
    about = describe(
        submodel,
        method=experiment.method.name,
        model=experiment.model.name,
        capacity=capacity,
        round=at.round,
        **({} if client is None else {"client": client}),
    )
    test = world.split.test
    done = export_submodel(module, submodel, test.batch(torch.arange(min(EXAMPLES, len(test)))), out, about)
    size = world.model.layout.size
    console.print(
        f"{done.path}: {done.parameters:,} of {size:,} parameters held, {done.stored:,} stored, {decimal(done.bytes)}; "
        f"read back with {done.read_with}, outputs agree to {done.difference:.1g}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
