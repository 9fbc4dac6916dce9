"""Settings that a choice on the command line drops, because they belong to what was chosen before: said aloud."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfibos.common.dotted_keys import flat
from fedfibos.common.user_code import is_own
from fedfibos.common.validation import toml_text
from fedfibos.config.choices import MethodChoice, ModelChoice, field_names
from fedfibos.config.experiment import Experiment, layers_of, to_toml
from fedfibos.config.idle import RULES
from fedfibos.config.layers import Layer, as_layers, merge
from fedfibos.config.task import TaskChoice
from fedfibos.data.forms.form import FORMS, form_of
from fedfibos.data.partition import Partition
from fedfibos.methods import METHODS, PRESETS
from fedfibos.models import options_of
from fedfibos.tasks import TASKS

CHOICES = {
    "method.name": "method.",
    "method.preset": "method.",
    "model.name": "model.",
    "task.name": "task.",
    "data.name": "data.options.",
    "data.partition.scheme": "data.partition.",
}
"""Key that chooses -> what the keys of the settings that belong to its choice begin with."""


def left_behind(
    path: Path | str, overrides: Sequence[str], experiment: Experiment, between: Sequence[Layer] = ()
) -> list[str]:
    """One line for every choice of the command line that drops settings written before it.

    Args:
        path: The experiment file, or a run directory.
        overrides: The command line's ``section.key=value``.
        experiment: What both together are.
        between: Layers of a study over the file.
    """
    written: dict[str, Any] = {}
    for layer in (*layers_of(Path(path)), *between):
        written = merge(written, layer.values)
    values = written
    for layer in as_layers(overrides):
        values = merge(values, layer.values)
    old, new = flat(written), flat(values)
    now = flat(tomllib.loads(to_toml(experiment)))
    lines: dict[str, str] = {}
    for key, prefix in CHOICES.items():
        if key not in new or new[key] == old.get(key) or prefix in lines:
            continue
        same = {
            name: {toml_text(known[name]) for known in (_defaults(key, written), now) if name in known} for name in old
        }
        dropped = {
            name: value
            for name, value in old.items()
            if name.startswith(prefix) and name != key and name not in new and toml_text(value) not in same[name]
        }
        if line := _line(key, new[key], dropped):
            lines[prefix] = line
    return list(lines.values())


def _same(name: str, value: object, *others: Mapping[str, Any]) -> bool:
    """Whether a setting has that value in one of the others as well: nothing is lost."""
    return any(name in other and toml_text(other[name]) == toml_text(value) for other in others)


def _line(key: str, chosen: object, dropped: Mapping[str, Any]) -> str:
    """What is dropped, and which of it the new choice has too; empty where there is nothing to say."""
    known = _settings(key, chosen)
    again = [name for name in dropped if known is None or name in known]
    if key == "data.partition.scheme":  # a setting that no scheme but the old one reads is no loss
        dropped = {name: dropped[name] for name in again}
    if not dropped:
        return ""
    settings = ", ".join(f"{name} = {toml_text(value)}" for name, value in dropped.items())
    text = f"{key} = {toml_text(chosen)} leaves behind what is set for {_before(key)}: {settings}"
    return f"{text}; to keep {' or '.join(again)}, set it on the command line too" if again else text


def _before(key: str) -> str:
    section, _, last = key.rpartition(".")
    return f"the {section if last == 'name' else last} before it"


def _settings(key: str, chosen: object) -> Collection[str] | None:
    """Keys that the new choice has too; of the user's own none are known, and None is all."""
    name = str(chosen)
    if key == "data.partition.scheme" and not is_own(chosen):
        return {one for keys, decides, used in RULES if decides == key and name in used for one in keys}
    if key == "method.preset":
        return None
    if is_own(chosen) and form_of(chosen) is None:
        return set()
    if key == "method.name":
        preset = ["preset"] if name in PRESETS else []
        return {f"method.{field}" for field in (*field_names(METHODS[name]), *preset)}
    if key == "task.name":
        return {f"task.{field}" for field in field_names(TASKS[name])}
    if key == "model.name":
        return {"model.norm", "model.channels_last", "model.frozen_whole"} | {
            f"model.options.{option}" for option in options_of(name)
        }
    form = form_of(chosen)
    return set() if form is None else {f"data.options.{field}" for field in field_names(FORMS[form].options)}


def _defaults(key: str, written: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that the earlier choice has by itself: a run directory writes them all out."""
    section = key.partition(".")[0]
    table = written.get(section, {})
    name = table.get("name")
    if key == "data.partition.scheme":
        return flat({"data": {"partition": dataclasses.asdict(Partition())}})
    if section == "data" or name is None or is_own(name):
        return {}
    if section == "method":
        return flat({"method": dict(MethodChoice(name, table.get("preset")).settings)})
    if section == "task":
        return flat({"task": dict(TaskChoice(name).settings)})
    return flat({"model": dataclasses.asdict(ModelChoice(name))})
