"""``fedfibos diagnose``: what the paper's theory says of a run's last checkpoint, measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from fedfibos.analysis.diagnose import READINGS, diagnose
from fedfibos.analysis.diagnose_channels import diagnose_channels, holds_channels
from fedfibos.cli.terminal import warn
from fedfibos.common.atomic_files import write_whole
from fedfibos.common.streams import stream
from fedfibos.runs.files import DIAGNOSIS
from fedfibos.runs.reading import RecordError
from fedfibos.simulation.reopen import reopen

LEGEND = (
    "ε: the surrogate, squares of the weights left out times their squared Fisher. e: squared difference of the "
    "gradients with and without the mask, on the held coordinates or on all; δ² = e / ‖x̃‖². Jaccard: with the "
    "selection of the same size by magnitude. A4 violated: pairs across the boundary that F (or f̄) and F²x̃² order "
    "otherwise. A5 orders e: how often ε orders two selections as e does; chance is .5."
)


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
    opened = reopen(run, device=device, data_dir=data_dir, warn=warn)
    world, at = opened.world, opened.checkpoint
    population = world.population
    capacities = list(capacities) or [c for c in population.capacities.table if c < 1.0]
    if not capacities:
        raise RecordError(f"{run}: all clients can afford the whole model, give capacities below 1 to look at")
    count = min(num_clients, len(population.ids))
    ids = [population.ids[i * len(population.ids) // count] for i in range(count)]
    clients = [replace(client, data=population.data(client.id)) for client in population.clients(ids, at.round)]
    generator = stream(opened.experiment.seed, "diagnose", at.round)
    result = diagnose(world.method, world.model, at.state, at.served, clients, capacities, generator)
    console.print(diagnosis_table(result))
    given = (world.method, world.model, at.state, at.served)
    if holds_channels(*given, replace(clients[0], capacity=min(capacities))):
        result["channels"] = diagnose_channels(*given, clients, capacities, generator)
        console.print(channels_table(result["channels"]))
    write_whole(run / DIAGNOSIS, json.dumps(result, indent=1) + "\n")
    console.print(f"written: {run / DIAGNOSIS}", markup=False, highlight=False, soft_wrap=True)


CHANNELS = (
    "ε: half the Fisher information of the gates of the channels left out. e: how much the clients' loss rises without "
    "them, with nothing trained since; KL: how far the outputs move. ε orders: in how many pairs of selections; chance "
    "is .5."
)


def channels_table(channels: Mapping[str, Any]) -> Table:
    """The numbers of :func:`diagnose_channels` for a terminal."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, title="Selections of channels")
    for heading in ("γ", "selection", "channels", "ε", "e", "KL", "ε orders e", "ε orders KL"):
        table.add_column(heading, justify="left" if heading == "selection" else "right")
    for capacity, found in channels.items():
        for place, (name, of) in enumerate(found["selections"].items()):
            orders = found.get("order_agreement", {}) if place == 0 else {}
            agreement = [_with_sd(orders[key]) if key in orders else "" for key in ("error", "divergence")]
            held, *rest = (of.get(key, {}).get("mean") for key in ("held", "surrogate", "error", "divergence"))
            last = place == len(found["selections"]) - 1
            table.add_row(
                capacity,
                name,
                f"{held:.0f}",
                *("–" if x is None else f"{x:.3g}" for x in rest),
                *agreement,
                end_section=last,
            )
    table.caption, table.caption_justify = CHANNELS, "left"
    return table


def diagnosis_table(diagnosis: Mapping[str, Any]) -> Group:
    """The numbers of :func:`diagnose` for a terminal: a table of selections, and one of the assumptions."""
    narrow: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False}  # within 80 columns
    clients = len(diagnosis["clients"])
    selections = Table(**narrow, title=f"Selections at round {diagnosis['round']}, mean over {clients} clients")
    for heading in ("γ", "selection", "ε", "e held", "e dense", "δ² held", "δ² dense", "Jaccard"):
        selections.add_column(heading, justify="left" if heading == "selection" else "right")
    assumptions = Table(**narrow, title="Assumptions")
    for heading in ("γ", "k", "A4 violated: F", "A4 violated: f̄", "A5 orders e held", "A5 orders e dense"):
        assumptions.add_column(heading, justify="right")
    for capacity, found in diagnosis["capacities"].items():
        for name, numbers in found["selections"].items():
            cells = [numbers["surrogate"], *numbers["error"].values(), *numbers["coefficient"].values()]
            cells = [f"{cell['mean']:.3g}" for cell in cells] + [_with_sd(numbers["jaccard"])]
            selections.add_row(capacity, name, *cells, end_section=name == list(found["selections"])[-1])
        agreement, violations = found.get("order_agreement", {}), found["violations"]
        rest = [violations.get(name) for name in ("fisher", "maintained")] + [agreement.get(r) for r in READINGS]
        assumptions.add_row(capacity, str(found["k"]), *map(_with_sd, rest))
    selections.caption, selections.caption_justify = LEGEND, "left"
    cv = {name: _with_sd(x) if isinstance(x, dict) else f"{x:.2f}" for name, x in diagnosis["cv"].items()}
    assumptions.caption = "Coefficient of variation: " + ", ".join(f"{name} {text}" for name, text in cv.items())
    return Group(selections, assumptions)


def _with_sd(summary: Mapping[str, Any] | None) -> str:
    """``mean ± sd``, or a dash for what was not measured."""
    if summary is None:
        return "–"
    return f"{summary['mean']:.2f}" + (f" ± {summary['sd']:.2f}" if summary["sd"] is not None else "")
