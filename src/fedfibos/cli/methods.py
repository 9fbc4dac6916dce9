"""``fedfibos methods``: the table of methods, read off the methods themselves."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from fedfibos.capacities import UNIFORM
from fedfibos.cli.dry_run import COST_NOTE, cost_table
from fedfibos.config.experiment import Experiment
from fedfibos.cost import Cost, cost
from fedfibos.data import TensorData
from fedfibos.method import Method
from fedfibos.methods import METHODS, PRESETS
from fedfibos.model import model_of
from fedfibos.models import build, encode
from fedfibos.simulation import World
from fedfibos.submodel import Slice
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from fedfibos.validation import ExperimentError


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
    return "channels" if isinstance(submodel, Slice) else "scalars"


def _first_reference(text: str) -> str:
    """The first paragraph under ``References:``, in one line."""
    found = re.search(r"^References:\n((?:[ \t]+\S.*\n?)+)", text, re.MULTILINE)
    return " ".join(found.group(1).split()) if found else ""


def costs_of(model_name: str) -> Table:
    """What each capacity costs under each method, for a bundled model on images of CIFAR-10's shape.

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
    rows = []
    for name, method in METHODS.items():
        for capacity in UNIFORM:
            rows.append(((name,), cost(method(), model, capacity, data, local)))
    of = f"{model_name} on 3x32x32 images, 10 classes, {model.layout.size:,} parameters"
    return cost_table(f"{of}, batches of {local.batch_size}", ("method",), rows)


def costs_in(world: World, experiment: Experiment) -> Table:
    """What each of an experiment's capacities costs under each method: its model, its data, its training.

    A method that cannot be used there (a model whose channels it cannot cut) says why.
    """
    data = world.split.train.subset(torch.arange(2))
    rows: list[tuple[tuple[str, ...], Cost]] = []
    left_out = []
    local = experiment.local
    chosen_name = experiment.method.name.rpartition(":")[2]  # of a user's own, the class
    methods = {name: method() for name, method in METHODS.items()} | {chosen_name: world.method}
    for name, chosen in methods.items():
        try:
            for capacity in sorted(experiment.federation.capacities, reverse=True):
                rows.append(((name,), cost(chosen, world.model, capacity, data, local)))
        except ValueError as error:
            left_out.append(f"{name}: {error}")
    title = f"{experiment.model.name} on {experiment.data.name}, {world.model.layout.size:,} parameters, "
    table = cost_table(f"{title}batches of {local.batch_size}", ("method",), rows)
    table.caption = "\n".join(left_out) or None
    return table


def show_methods(costs: Table, console: Console) -> None:
    """Print the methods, and what they cost."""
    table = Table(show_lines=True)
    for column in ("method", "granularity", "presets"):
        table.add_column(column, no_wrap=True)
    table.add_column("what a client holds; paper", overflow="fold")
    for row in map(summary, METHODS):
        table.add_row(row.name, row.granularity, "\n".join(row.presets) or "–", f"{row.selects}\n\n{row.paper}")
    console.print(table)
    console.print(costs)
    console.print(COST_NOTE, soft_wrap=True)
