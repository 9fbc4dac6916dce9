"""How a report names data, fleets, models and methods, in words and as names of files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from fedfibos.common.dotted_keys import flat
from fedfibos.common.user_code import is_own
from fedfibos.common.validation import toml_text
from fedfibos.config.capacities import TABLES
from fedfibos.config.choices import MethodChoice
from fedfibos.config.experiment import Experiment
from fedfibos.data.partition import Partition
from fedfibos.methods import METHODS
from fedfibos.report.fleets import DATA, MODEL

DATA_NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "ag_news": "AG News",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    DATA: "Flower fleet",
}
METHOD_NAMES = {"fedbrb": "FedBRB (our interpretation)", "fedfibos-channels": "FedFIbOS on channels"}
"""Display names that are not the class's own; FedBRB has no public code, and every table says so."""


def problem_label(experiment: Experiment) -> str:
    """``CIFAR-10, 2 classes a client, non-uniform``."""
    name = experiment.data.name
    parts = (DATA_NAMES.get(name, name), partition_label(experiment.data.partition), fleet_label(experiment))
    return ", ".join(parts)


def partition_label(partition: Partition) -> str:
    """How the data are dealt, in words."""
    if partition.scheme == "pathological":
        return f"{partition.classes_per_client} classes a client"
    if partition.scheme == "quantity":
        return f"IID, sizes by Dirichlet {partition.alpha:g}"
    if is_own(partition.scheme):
        return partition.scheme
    if partition.scheme in ("iid", "natural"):
        return {"iid": "IID", "natural": "by owner"}[partition.scheme]
    by_class = " by class" if partition.scheme == "dirichlet-by-class" else ""
    return f"Dirichlet {partition.alpha:g}{by_class}"


def fleet_label(experiment: Experiment) -> str:
    """The capacities, by the paper's name or written out; the devices with their shares."""
    if devices := experiment.federation.devices:
        return ", ".join(f"{100 * device.share:g} % {device.name}" for device in devices)
    capacities = dict(experiment.federation.capacities)
    for name, table in TABLES.items():
        if capacities == dict(table):
            return name
    if len(capacities) == 1:
        return f"all clients at {next(iter(capacities)):g}"
    return ", ".join(f"{100 * share:g} % at {capacity:g}" for capacity, share in capacities.items())


def scale_label(experiment: Experiment) -> str:
    """``resnet8 (group norm), 100 clients, 10 a round, 100 rounds``."""
    federation, model = experiment.federation, experiment.model
    norm = "" if model.norm in (None, "none") else f" ({model.norm} norm)"
    name = "the app's model" if model.name == MODEL else model.name
    if "checkpoint" in model.options:
        name = PurePath(model.options["checkpoint"]).name
    measured = ", measured on validation examples" if experiment.evaluation.validation else ""
    parts = model.held[0] if len(model.held) == 1 else f"{len(model.held)} parts"
    held = f", {parts} held whole" if model.held else ""
    return (
        f"{name}{norm}{held}, {federation.clients} clients, {federation.cohort_label} a round, "
        f"{federation.rounds} rounds{measured}"
    )


def method_label(experiment: Experiment) -> str:
    """The method, its preset, and the settings that differ from the preset's.

    Of a user's own method those that differ from its declared defaults; all of them where its code is not found.
    """
    method = experiment.method
    default = _declared(method) if is_own(method.name) else method.left_out()
    changed = [
        f"{k} = {toml_text(v).strip(chr(39))}"
        for k, v in method.settings.items()
        if k not in default or v != default[k]
    ]
    own = method.name.rpartition(":")[2] if is_own(method.name) else METHODS[method.name].__name__
    name = METHOD_NAMES.get(method.name, own)
    return ", ".join([name if method.preset is None else f"{name} “{method.preset}”", *changed])


def _declared(method: MethodChoice) -> dict[str, Any]:
    """The defaults of a user's own method, by setting; none where its code cannot be imported here."""
    declared = {}
    for key in method.settings:
        rest = {k: v for k, v in method.settings.items() if k != key}
        with suppress(ValueError):  # no such code or no such setting any more, or one without a default
            declared[key] = replace(method, settings=rest).resolved().settings.get(key)
    return declared


def add_scales(labels: Sequence[str], scales: Sequence[str]) -> list[str]:
    """Labels, with what of their scale is their own where several have one label."""
    told = []
    for label, scale in zip(labels, scales, strict=True):
        others = [s.split(", ") for other, s in zip(labels, scales, strict=True) if other == label]
        own = [piece for piece in scale.split(", ") if any(piece not in other for other in others)]
        told.append(", ".join([label, *own]))
    return told


def tell_apart(labels: Sequence[str], configs: Sequence[str]) -> list[str]:
    """Labels with the settings that tell equal ones apart."""
    settings = [flat(tomllib.loads(config)) for config in configs]
    told = []
    for i, label in enumerate(labels):
        twins = [j for j in range(len(labels)) if labels[j] == label]
        keys = [k for k in settings[i] if any(settings[j].get(k) != settings[i][k] for j in twins)]
        keys += [k for k in dict.fromkeys(k for j in twins for k in settings[j]) if k not in settings[i]]
        pieces = [
            f"{k.rpartition('.')[2]} = {toml_text(settings[i][k]) if k in settings[i] else 'unset'}" for k in keys
        ]
        told.append(", ".join([label, *pieces]))
    return told


def file_name(text: str, longest: int = 64) -> str:
    """Lower-case letters and digits with hyphens between them, cut where it is long."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].rstrip("-")


def free_name(stem: str, taken: Sequence[str]) -> str:
    """The name, with a number where it is taken."""
    number = 1
    while (name := stem if number == 1 else f"{stem}-{number}") in taken:
        number += 1
    return name
