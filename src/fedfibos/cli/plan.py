"""``fedfibos plan``: who of a fleet of devices can take part under each method, with what, and what binds."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from fedfibos.analysis.fitting import Fit
from fedfibos.cli.methods import granularity
from fedfibos.common.formatting import bytes_text, count_of, short_text
from fedfibos.config.devices import Device
from fedfibos.simulation.plan import FleetPlan, MethodPlan

WHAT = {"channels": "slices of whole channels", "scalars": "masks of single weights", "whole model": "the whole model"}
"""What a client holds, by a method's granularity."""

NOTE = (
    "capacity: the largest that the device can hold. MACs: an example forward.\n"
    "memory: of the client's process beyond imports and torch's code, at most.\n"
    "bytes: of a round, both ways. seconds: of a round's local training, a step\n"
    "counted as three forward passes. bound by: limits that the next larger\n"
    "capacity breaks."
)


def show_plan(plan: FleetPlan, console: Console) -> None:
    """Print the plan: the fleet, then a table a method; within the width of the console."""
    experiment = plan.experiment
    local = experiment.local
    steps = count_of(local.steps, "step") if local.steps is not None else count_of(local.epochs or 1, "epoch")
    _line(
        console,
        f"{experiment.model.name} on {experiment.data.name}, {plan.parameters:,} parameters; a round is {steps} on "
        f"batches of {local.batch_size}, {plan.examples:,} examples a client at most",
    )
    if plan.measured is not None:
        speed = plan.measured
        _line(
            console,
            f"this machine ({speed.threads} threads) trains {short_text(speed.examples_per_second)} examples a second "
            f"of the whole model: examples_per_second = {speed.examples_per_second:.3g}, or macs_per_second = "
            f"{speed.macs_per_second:.3g}; a client's process takes {bytes_text(speed.imports)} before it trains "
            "(interpreter and imports, not in memory below)",
        )
    console.print(_devices(experiment.federation.devices, plan.clients()))
    for one in plan.methods:
        _show_method(one, plan.clients(), console)
    _line(console, NOTE)


def _devices(devices: Iterable[Device], clients: Iterable[int]) -> Table:
    table = _table("device", "clients", "memory", "MACs/s", "examples/s", "seconds", "bytes")
    for device, count in zip(devices, clients, strict=True):
        table.add_row(
            device.name,
            str(count),
            "–" if device.memory is None else bytes_text(device.memory),
            *("–" if n is None else short_text(n) for n in (device.macs_per_second, device.examples_per_second)),
            "–" if device.seconds is None else short_text(device.seconds),
            "–" if device.bytes is None else bytes_text(device.bytes),
        )
    return table


def _show_method(plan: MethodPlan, clients: tuple[int, ...], console: Console) -> None:
    there = [count for fit, count in zip(plan.fits, clients, strict=True) if fit.capacity is not None]
    held = WHAT[granularity(plan.method)]
    _line(
        console,
        f"\n{plan.name}: {held}; {len(there)} of {len(plan.fits)} classes, {sum(there)} of {sum(clients)} clients "
        "take part",
    )
    if there:
        table = _table("device", "capacity", "parameters", "MACs", "memory", "seconds", "bytes", "bound by")
        for fit in plan.fits:
            if fit.cost is not None:
                table.add_row(*_cells(fit))
        console.print(table)
    for fit in plan.fits:
        if fit.left_out:
            _line(console, f"{fit.device.name} is left out: {fit.left_out}")


def _cells(fit: Fit) -> list[str]:
    cost = fit.cost
    assert cost is not None
    return [
        fit.device.name,
        f"{cost.capacity:g}",
        f"{cost.parameters:,}",
        short_text(cost.macs),
        bytes_text(cost.memory),
        "–" if fit.seconds is None else short_text(fit.seconds),
        bytes_text(cost.bytes_down + cost.bytes_up),
        ", ".join(fit.bound_by) or "–",
    ]


def _table(*columns: str) -> Table:
    """A table within 80 columns: names of devices are folded where they are long."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        texts = column in ("device", "bound by")
        table.add_column(
            column,
            justify="left" if texts else "right",
            no_wrap=not texts,
            overflow="fold",
            max_width=12 if texts else None,
        )
    return table


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False)


def show_json(plan: FleetPlan) -> None:
    """Print the plan as JSON."""
    print(json.dumps(plan.as_json(), indent=2, ensure_ascii=False))
