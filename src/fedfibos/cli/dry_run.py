"""``fedfibos run --dry-run``: the resolved settings, and what each capacity really holds, receives and sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from fedfibos.experiment import Experiment, to_toml
from fedfibos.simulate import World, build_world
from fedfibos.submodel import Submodel
from fedfibos.traffic import download_bytes, upload_bytes


@dataclass(frozen=True)
class Plan:
    """One capacity before the first round.

    Attributes:
        capacity: γ.
        clients: Number of clients that have it (in round 0).
        parameters: Parameters that its submodel holds, normalisation included.
        share: Share of the d maskable parameters that it holds: the realised capacity.
        bytes_down: Bytes to one client of it in a round.
        bytes_up: Bytes from one client of it in a round.
    """

    capacity: float
    clients: int
    parameters: int
    share: float
    bytes_down: int
    bytes_up: int


def plan(world: World) -> list[Plan]:
    """What every capacity means for this model and method, largest first.

    The upload is measured on a real one: a single step on two examples.
    """
    params = world.model.initial_params()
    params = replace(params, flat=params.flat.to(world.model.device))
    state = world.method.init(params)
    clients = world.population.clients(list(range(len(world.population))), 0)
    plans = []
    for capacity in sorted({client.capacity for client in clients}, reverse=True):
        members = [client for client in clients if client.capacity == capacity]
        submodel = world.method.extract(world.model, state, params, members[0])
        step = replace(members[0].local, steps=1, epochs=None, batch_size=2)
        client = replace(members[0], local=step, data=world.split.train.subset(torch.arange(2)))
        upload = world.method.train(world.model, params, submodel, client)
        layout = world.model.layout
        plans.append(
            Plan(
                capacity,
                len(members),
                submodel.num_held,
                held_maskable(submodel, layout.size, layout.num_maskable) / layout.num_maskable,
                download_bytes(submodel, layout),
                upload_bytes(upload),
            )
        )
    return plans


def held_maskable(submodel: Submodel, size: int, num_maskable: int) -> int:
    """How many of the maskable coordinates a submodel holds."""
    held = torch.zeros(size)
    submodel.count_in(held, 1.0)
    return int(held[:num_maskable].count_nonzero())


def show_plan(experiment: Experiment, data_dir: Path | None, console: Console, warn: Callable[[str], None]) -> None:
    """Print the resolved settings and the plan."""
    world = build_world(experiment, device="cpu", data_dir=data_dir, warn=warn)
    console.print(to_toml(experiment), markup=False, highlight=False, soft_wrap=True)
    layout = world.model.layout
    table = Table(title=f"{layout.size:,} parameters, {layout.num_maskable:,} of them maskable; bytes a client a round")
    for column in ("capacity", "clients", "parameters", "share", "bytes down", "bytes up"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in plan(world):
        table.add_row(
            f"{row.capacity:g}",
            str(row.clients),
            f"{row.parameters:,}",
            f"{row.share:.4f}",
            f"{row.bytes_down:,}",
            f"{row.bytes_up:,}",
        )
    console.print(table)
