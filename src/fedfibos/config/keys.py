"""Which keys an experiment file may have, and what to say of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.common.user_code import is_own
from fedfibos.common.validation import check_name, listed, nearest
from fedfibos.config.choices import field_names
from fedfibos.config.sections import SECTIONS
from fedfibos.config.synonyms import WITHIN, synonym
from fedfibos.data.forms.form import FORMS, form_of
from fedfibos.data.partition import Partition
from fedfibos.methods import METHODS
from fedfibos.models import options_of
from fedfibos.tasks import TASKS


def check_keys(values: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Raise ValueError for a key that no section has; ``merged`` says which method and model are chosen."""
    keys = _known_keys(merged)
    for section, content in values.items():
        if section != "seed" and section not in SECTIONS:
            raise ValueError(_unknown(section, [*SECTIONS, "seed"], keys))
        if section == "seed":
            continue
        if not isinstance(content, dict):
            raise ValueError(f"{section} must be a table, got {content!r}{_meant(section, content)}")
        for key, value in content.items():
            paths = [f"{section}.{key}"]
            if any(known.startswith(f"{section}.{key}.") for known in keys):
                if not isinstance(value, dict):
                    raise ValueError(
                        f"{section}.{key} must be a table, got {value!r}{_meant(f'{section}.{key}', value)}"
                    )
                paths = [f"{section}.{key}.{inner}" for inner in value]
            for path in paths:
                table = path.rpartition(".")[0]
                if path not in keys and f"{section}.*" not in keys and f"{table}.*" not in keys:
                    siblings = [known for known in keys if known.startswith(f"{table}.")]
                    raise ValueError(_unknown(path, siblings, keys))


CHOSEN_BY = {"data": "name", "task": "name", "model": "name", "method": "name", "data.partition": "scheme"}
"""Table -> its key that names what is chosen."""


def _meant(table: str, value: object) -> str:
    """The key that a name was meant for, where it was given in place of the whole table."""
    if not isinstance(value, str) or table not in CHOSEN_BY or not value or "=" in value:
        return ""
    return f"; did you mean {table}.{CHOSEN_BY[table]} = {value!r}?"


def _known_keys(merged: Mapping[str, Any]) -> list[str]:
    """Dotted names of all keys; ``section.*`` where they depend on a name that is not given."""
    keys = []
    for section, cls in SECTIONS.items():
        chosen = merged.get(section, {}).get("name") if isinstance(merged.get(section), dict) else None
        names = field_names(cls)
        if section == "data":
            names = ["name", *_data_option_keys(chosen), *(f"partition.{name}" for name in field_names(Partition))]
        if section == "method":
            if chosen is not None and not is_own(chosen):
                check_name("method.name", chosen, METHODS)
            free = chosen is None or is_own(chosen)
            names = ["name", "preset", *("*" if free else field_names(METHODS[str(chosen)]))]
        if section == "task":
            task = "classification" if chosen is None else chosen
            if not is_own(task):
                check_name("task.name", task, TASKS)
            names = ["name", *("*" if is_own(task) else field_names(TASKS[str(task)]))]
        if section == "model":
            names = [
                "name",
                "norm",
                "channels_last",
                "held",
                "whole",
                "frozen_whole",
                *(_option_keys(chosen) if chosen is not None else "*"),
            ]
        keys += [f"{section}.{name}" for name in names]
    return keys


def _option_keys(model: Any) -> list[str]:
    """Keys of a model's options; any, where the model is the user's own."""
    return ["options.*"] if is_own(model) else [f"options.{name}" for name in options_of(model)]


def _data_option_keys(data: Any) -> list[str]:
    """Keys of the options of a form of data; any, where the data set is the user's own."""
    form = form_of(data)
    if form is not None:
        return [f"options.{name}" for name in field_names(FORMS[form].options)]
    return ["options.*"] if is_own(data) else []


FEW = 6
"""Keys that a message lists; where a table has more, ``fedfibos settings`` does."""


OF_FLEETS = ("extra", "measure_every", "deadline", "wait", "min_participants")
"""Keys of ``federation`` that an app over Flower has and an experiment has not."""


def _unknown(path: str, siblings: Sequence[str], keys: Sequence[str]) -> str:
    """An unknown key, and what it may mean: the same name elsewhere, another program's word, a slip of the pen."""
    section, _, leaf = path.rpartition(".")
    if section == "federation" and leaf in OF_FLEETS:
        return (
            f"unknown key {path!r}: it is of a fleet over Flower, whose devices answer at different times; in a "
            "simulation all answer but those that federation.dropout draws"
        )
    elsewhere = next((key for key in keys if key.rpartition(".")[2] == leaf), None)
    if meant := WITHIN.get(path) or elsewhere or synonym(path, [*keys, "seed"]):
        return f"unknown key {path!r}; did you mean {meant!r}?"
    if near := nearest(leaf, (key.rpartition(".")[2] for key in siblings)):
        return f"unknown key {path!r}; did you mean {(f'{section}.{near}' if section else near)!r}?"
    if len(siblings) <= FEW:
        return f"unknown key {path!r}; it must be {listed(siblings)}"
    return f"unknown key {path!r}; see: fedfibos settings" + (f" {section}" if section else "")
