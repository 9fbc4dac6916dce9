"""``fedfibos methods``: what the methods are, read off themselves, and what each capacity costs under them."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from fedfibos.analysis.cost import Cost, cost
from fedfibos.cli.dry_run import COST_NOTE, cost_table
from fedfibos.cli.terminal import warn
from fedfibos.common.validation import ExperimentError, check_name
from fedfibos.config.capacities import UNIFORM
from fedfibos.config.experiment import Experiment
from fedfibos.data import TensorData
from fedfibos.method import Method
from fedfibos.methods import METHODS, PRESETS
from fedfibos.model import model_of
from fedfibos.models import build, encode
from fedfibos.simulation import World
from fedfibos.training import LocalTraining
from fedfibos.types import Client


@dataclass(frozen=True)
class Summary:
    """One line of the table.

    Attributes:
        name: Key of ``METHODS``.
        selects: What a client holds: the first sentence of the method's module.
        granularity: ``scalars``, ``channels``, or ``whole model``.
        presets: Names of its presets.
        paper: First entry of the module's references.
    """

    name: str
    selects: str
    granularity: str
    presets: tuple[str, ...]
    paper: str


def summary(name: str) -> Summary:
    """A method's line, from the docstring of its module and from what it extracts of a small model."""
    cls = METHODS[name]
    text = inspect.getdoc(sys.modules[cls.__module__]) or ""
    return Summary(
        name,
        text.partition("\n\n")[0].partition(": ")[2].replace("\n", " ").rstrip("."),
        granularity(cls()),
        tuple(PRESETS.get(name, {})),
        _first_reference(text),
    )


def granularity(method: Method) -> str:
    """What a client of capacity one half holds pieces of."""
    with torch.random.fork_rng(devices=[]):
        module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model = model_of(module, example=torch.zeros(2, 4))
    params = model.initial_params()
    client = Client(id=0, capacity=0.5, round=0, seed=0, local=LocalTraining())
    submodel = method.extract(model, method.init(params), params, client)
    if submodel.num_held == model.layout.size:
        return "whole model"
    return "scalars" if submodel.widths is None else "channels"


def _first_reference(text: str) -> str:
    """The first paragraph under ``References:``, in one line."""
    found = re.search(r"^References:\n((?:[ \t]+\S.*\n?)+)", text, re.MULTILINE)
    return " ".join(found.group(1).split()) if found else ""


@dataclass(frozen=True)
class Costs:
    """What capacities cost under methods.

    Attributes:
        title: Of what model, data and batches.
        rows: Method and cost of each capacity.
        left_out: Why a method cannot be used there, one line each.
    """

    title: str
    rows: tuple[tuple[str, Cost], ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Affordable:
    """What a client has; None: no limit.

    Attributes:
        memory: Bytes of a device's process at its peak (:attr:`fedfibos.analysis.cost.Cost.memory`).
        traffic: Bytes of a round, both ways together.
    """

    memory: float | None = None
    traffic: float | None = None

    def __bool__(self) -> bool:
        return self != Affordable()

    def fits(self, cost: Cost) -> bool:
        """Whether a cost keeps within both."""
        needed = ((self.memory, cost.memory), (self.traffic, cost.bytes_down + cost.bytes_up))
        return all(limit is None or takes <= limit for limit, takes in needed)


def costs_of(model_name: str, methods: Mapping[str, type[Any]]) -> Costs:
    """What each capacity costs under methods, for a bundled model on images of CIFAR-10's shape.

    Raises:
        ExperimentError: Unknown model, or one of texts.
    """
    shape, num_classes, local = (3, 32, 32), 10, LocalTraining()
    images = TensorData(torch.zeros(2, *shape), torch.tensor([0, 1]))
    try:
        data, module = encode(model_name, images, {}), build(model_name, num_classes, shape)
    except ValueError as error:
        raise ExperimentError(str(error)) from None
    model = model_of(module, example=torch.zeros(2, *shape))
    rows = [
        (name, cost(method(), model, capacity, data, local)) for name, method in methods.items() for capacity in UNIFORM
    ]
    of = f"{model_name} on 3x32x32 images, 10 classes, {model.sizes}"
    return Costs(f"{of}, batches of {local.batch_size}", tuple(rows))


def costs_in(world: World, experiment: Experiment, alone: bool = False) -> Costs:
    """What each of an experiment's capacities costs under each method: its model, its data, its training.

    A method that cannot be used there (a model whose channels it cannot cut) says why.

    Args:
        world: The experiment's.
        experiment: The experiment.
        alone: Of its own method only.
    """
    data = world.split.train.subset(torch.arange(2))
    rows: list[tuple[str, Cost]] = []
    left_out = []
    local = experiment.local.with_levels(world.population.capacities.table)
    budget = experiment.federation.budget
    chosen_name = experiment.method.name.rpartition(":")[2]  # of a user's own, the class
    others = {} if alone else {name: method() for name, method in METHODS.items()}
    for name, chosen in (others | {chosen_name: world.method}).items():
        try:
            for capacity in sorted(experiment.federation.capacities or UNIFORM, reverse=True):
                rows.append((name, cost(chosen, world.model, capacity, data, local, budget)))
        except ValueError as error:
            left_out.append(f"{name}: {error}")
    title = f"{experiment.model.name} on {experiment.data.name}, {world.model.sizes}, "
    shares = "" if budget == ("parameters",) else f"; capacities of slices are shares of {' and '.join(budget)}"
    devices = "; what its devices hold says fedfibos plan" if experiment.federation.devices else ""
    return Costs(f"{title}batches of {local.batch_size}{shares}{devices}", tuple(rows), tuple(left_out))


def methods_named(overrides: Sequence[str]) -> Mapping[str, type[Any]]:
    """The methods to show where there is no experiment file: all, or the one of ``method.name=NAME``.

    Raises:
        ExperimentError: Another override, or an unknown method.
    """
    chosen = METHODS
    for override in overrides:
        key, _, name = override.partition("=")
        if key.strip() != "method.name":
            raise ExperimentError(f"without an experiment file only method.name can be set, got {override!r}")
        try:
            check_name("method.name", name.strip(), METHODS)
        except ValueError as error:
            raise ExperimentError(str(error)) from None
        chosen = {name.strip(): METHODS[name.strip()]}
    return chosen


def names_a_method(overrides: Sequence[str]) -> bool:
    """Whether overrides of an experiment say which method it is."""
    return any(override.partition("=")[0].strip() in ("method", "method.name") for override in overrides)


def show_costs(costs: Costs, limits: Affordable, console: Console) -> None:
    """Print costs as a table; with limits, what keeps within them."""
    heads = ("method", "fits") if limits else ("method",)
    rows = [((name, "yes" if limits.fits(of) else "no") if limits else (name,), of) for name, of in costs.rows]
    table = cost_table(costs.title, heads, rows)
    table.caption = "\n".join(costs.left_out) or None
    console.print(table)
    console.print(COST_NOTE, soft_wrap=True)


def show_json(costs: Costs, limits: Affordable) -> None:
    """Print what keeps within the limits as JSON; who cannot be used goes to standard error."""
    for line in costs.left_out:
        warn(line)
    print(json.dumps([{"method": name, **asdict(of)} for name, of in costs.rows if limits.fits(of)], indent=2))


def show_methods(names: Iterable[str], console: Console) -> None:
    """Print what methods select, their presets and papers."""
    table = Table(show_lines=True)
    for column in ("method", "granularity", "presets"):
        table.add_column(column, no_wrap=True)
    table.add_column("what a client holds; paper", overflow="fold")
    for row in map(summary, names):
        table.add_row(row.name, row.granularity, "\n".join(row.presets) or "–", f"{row.selects}\n\n{row.paper}")
    console.print(table)
