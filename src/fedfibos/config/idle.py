"""Settings that change nothing because of others: said aloud, lest two runs seem to differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from fedfibos.common.dotted_keys import flat
from fedfibos.common.validation import listed, toml_text
from fedfibos.config.experiment import Experiment
from fedfibos.data.partition import Partition
from fedfibos.method import Idle
from fedfibos.methods import IDLE
from fedfibos.server.settings import ADAPTIVE, Server
from fedfibos.training import LocalTraining

RULES: tuple[Idle, ...] = (
    (("data.partition.alpha",), "data.partition.scheme", ("dirichlet", "dirichlet-by-class", "quantity")),
    (("data.partition.classes_per_client",), "data.partition.scheme", ("pathological",)),
    (("data.partition.min_size",), "data.partition.scheme", ("dirichlet-by-class", "quantity")),
    (("data.partition.max_attempts",), "data.partition.scheme", ("dirichlet-by-class",)),
    (("local.momentum",), "local.optimizer", ("sgd",)),
    (("local.betas",), "local.optimizer", ("adamw",)),
    (("local.adjust_tau",), "local.absent_labels", ("adjust",)),
    (("local.distill", "local.temperature"), "local.nested_rule", ("sandwich",)),
    (("local.milestones", "local.decay"), "local.schedule", ("milestones",)),
    (("server.momentum",), "server.optimizer", ("momentum",)),
    (("server.betas", "server.tau"), "server.optimizer", ADAPTIVE),
    (("server.trim",), "server.merge", ("trimmed-mean",)),
)
"""Keys, the key that decides whether they matter, and the values with which they do; a method's own are beside it."""


def idle(experiment: Experiment) -> list[str]:
    """One line for every setting that was changed from its default and has no effect."""
    values, defaults = _chosen(experiment), _defaults(experiment)
    own = [
        (tuple(f"method.{name}" for name in names), f"method.{decides}", used)
        for names, decides, used in IDLE.get(experiment.method.name, ())
    ]
    unread = [
        f"{key} = {toml_text(values[key])} has no effect without {decides} = {listed(used)}"
        for keys, decides, used in (*RULES, *own)
        for key in keys
        if values.get(key) != defaults.get(key) and values.get(decides) not in used
    ]
    return unread + list(_of_nested_steps(experiment))


def _of_nested_steps(experiment: Experiment) -> Iterator[str]:
    """Settings of nested steps where there is no such step, and nested steps that find nothing smaller to train."""
    local, default = experiment.local, LocalTraining()
    sandwich = local.nested_rule == "sandwich"
    if not local.nested:
        for name in ("nested_rule", "levels", *(("distill", "temperature") if sandwich else ())):
            if getattr(local, name) != getattr(default, name):
                yield f"local.{name} = {toml_text(getattr(local, name))} has no effect without local.nested above 0"
        return
    if sandwich and local.temperature != default.temperature and not local.distill:
        yield f"local.temperature = {toml_text(local.temperature)} has no effect without local.distill above 0"
    fleet = experiment.federation.capacities
    if fleet and not any(level < max(fleet) for level in local.levels or fleet):
        where = f"local.levels = {toml_text(local.levels)}" if local.levels else "the fleet"
        most = f"{max(fleet):g}"
        yield f"local.nested = {local.nested:g} has no effect: {where} has no capacity below {most}, the largest"


def without_idle(partition: Partition) -> Partition:
    """A partition with the fields that its scheme does not use at their defaults: equal ones compare equal."""
    unused = [
        key.rpartition(".")[2]
        for keys, decides, used in RULES
        for key in keys
        if decides == "data.partition.scheme" and partition.scheme not in used
    ]
    default = Partition()
    return dataclasses.replace(partition, **{name: getattr(default, name) for name in unused})


def _chosen(experiment: Experiment) -> dict[str, Any]:
    server = dataclasses.asdict(experiment.server)
    sections = {"local": dataclasses.asdict(experiment.local), "server": server, "method": experiment.method.settings}
    return flat({"data": {"partition": dataclasses.asdict(experiment.data.partition)}, **sections})


def _defaults(experiment: Experiment) -> dict[str, Any]:
    server = dataclasses.asdict(Server())
    sections = {"local": dataclasses.asdict(LocalTraining()), "server": server, "method": experiment.method.left_out()}
    return flat({"data": {"partition": dataclasses.asdict(Partition())}, **sections})
