"""``fedfibos run --dry-run``: the resolved settings, and what each capacity holds, computes, receives and sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from torch import Tensor

from fedfibos.analysis.cost import Cost, cost
from fedfibos.common.formatting import percent
from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.simulation import World, build_world
from fedfibos.simulation.population import Population, class_counts
from fedfibos.soundness import first_state


def plan(world: World, experiment: Experiment) -> list[tuple[int, Cost]]:
    """(Number of clients in round 0, cost) of every capacity, largest first."""
    capacities = [client.capacity for client in world.population.everyone(0)]
    data, budget = world.split.train.subset(torch.arange(2)), experiment.federation.budget
    local = experiment.local.with_levels(world.population.capacities.table)
    return [
        (capacities.count(capacity), cost(world.method, world.model, capacity, data, local, budget))
        for capacity in sorted(set(capacities), reverse=True)
    ]


def cost_table(title: str, heads: Sequence[str], rows: Iterable[tuple[Sequence[str], Cost]]) -> Table:
    """A table of costs; ``heads`` and the texts of each row are its first columns."""
    table = Table(title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)  # within 80 columns
    for column in heads:
        table.add_column(column, no_wrap=True)
    for column in ("capacity", "parameters", "share", "MACs", "memory", "down", "up"):
        table.add_column(column, justify="right", no_wrap=True)
    for texts, row in rows:
        table.add_row(
            *texts,
            f"{row.capacity:g}",
            f"{row.parameters:,}",
            percent(row.share),
            decimal(row.macs).replace("bytes", "").replace("B", "").strip(),
            decimal(row.memory),
            decimal(row.bytes_down),
            decimal(row.bytes_up),
        )
    return table


COST_NOTE = (
    "share: of the maskable parameters, realised. MACs: forward pass of one example. memory: of a device's process\n"
    "at most, as the operating system counts it: interpreter and imports (as measured here), messages, the model,\n"
    "gradients, optimiser, activations and what the method adds, but not the device's examples. down, up: bytes a\n"
    "client a round, before compression. Masks (FIARSE, FedFIbOS) are trained in the shape of the full model: they\n"
    "save bytes, not arithmetic or memory."
)


def show_plan(experiment: Experiment, data_dir: Path | None, console: Console, warn: Callable[[str], None]) -> None:
    """Print the resolved settings and the plan."""
    world = build_world(experiment, device="cpu", data_dir=data_dir, warn=warn)
    console.print(to_toml(experiment), markup=False, highlight=False, soft_wrap=True)
    layout = world.model.layout
    batch_size = experiment.local.batch_size
    title = f"{world.model.sizes}, {layout.num_maskable:,} of them maskable; batches of {batch_size}"
    params = world.model.initial_params()
    for line in world.cautions(0, first_state(world.method, params), params):
        warn(line)
    rows = [((str(clients),), row) for clients, row in plan(world, experiment)]
    console.print(cost_table(title, ("clients",), rows))
    console.print(COST_NOTE, soft_wrap=True)
    console.print(how_dealt(world.population), soft_wrap=True)


def how_dealt(population: Population) -> str:
    """What the partition came to: examples and classes a client, and how much of a client is its largest class."""
    sizes, labels = population.parts.sizes(), population.train.labels
    figures = {"examples": sizes}
    if labels.dim() == 1 and labels.dtype == torch.int64 and int(labels.min()) >= 0:
        counts = class_counts(population.parts, labels, int(labels.max()) + 1)
        share = 100 * counts.max(1).values / sizes.clamp_min(1)
        figures |= {"classes": (counts > 0).sum(1), "% of the largest class": share}
    said = [f"{_range(values)} {what}" for what, values in figures.items()]
    return f"a client has (least, median, most): {'; '.join(said)}"


def _range(values: Tensor) -> str:
    least, median, most = (float(values.double().quantile(q)) for q in (0.0, 0.5, 1.0))
    return f"{least:.0f}, {median:.0f}, {most:.0f}"
