"""Every setting of an experiment explained: key, values, default, meaning, from the definitions themselves."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w
from pydantic import TypeAdapter

from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.devices import Device
from fedfibos.config.federation import Federation
from fedfibos.config.limits import LARGEST
from fedfibos.config.sections import SECTIONS, Data
from fedfibos.config.task import TaskChoice
from fedfibos.data import DATA_SETS, FORMS
from fedfibos.data.partition import Partition
from fedfibos.methods import METHODS, PRESETS
from fedfibos.models import MODELS, options_of
from fedfibos.tasks import TASKS

REQUIRED = "required"
NOT_SET = "not set"
NAMES: Mapping[str, Iterable[str]] = {
    "data.name": [*DATA_SETS, *(f"{form}:PATH" for form in FORMS)],
    "task.name": TASKS,
    "model.name": MODELS,
    "method.name": METHODS,
}
"""Keys whose values are names of ours; data, task, model and method may be the user's own."""


@dataclass(frozen=True)
class Setting:
    """One key of an experiment file.

    Attributes:
        key: Dotted, as overrides write it.
        values: What it takes, in words.
        default: As TOML writes it; ``required`` or ``not set`` where there is none.
        meaning: A sentence or two.
    """

    key: str
    values: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Group:
    """Settings that are looked up together.

    Attributes:
        title: The section, with the method or model it is of.
        note: What the section is, and the presets of a method.
        settings: In the order of their definition.
    """

    title: str
    note: str
    settings: tuple[Setting, ...]


def groups() -> list[Group]:
    """All settings, in the order in which a run's ``config.toml`` has them."""
    seed = Setting("seed", "integer, at least 0", "0", "Root of all random streams.")
    found = [Group("seed", "The run's random streams.", (seed,))]
    for name, section in SECTIONS.items():
        found.append(Group(name, _summary(section), _fields(name, section)))
        if section is Data:
            found += [_form(options) for options in dict.fromkeys(form.options for form in FORMS.values())]
            found.append(Group("data.partition", _summary(Partition), _fields("data.partition", Partition)))
        if section is Federation:
            found.append(Group("federation.devices", _summary(Device), _fields("federation.devices", Device)))
        if section is TaskChoice:
            found += [Group(f"task {task}", _summary(TASKS[task]), _fields("task", TASKS[task])) for task in TASKS]
        if section is ModelChoice:
            found += [Group(f"model.options of {model}", _summary(MODELS[model]), _options(model)) for model in MODELS]
        if section is MethodChoice:
            found += [
                Group(f"method {name}", _method_note(name), _fields("method", method))
                for name, method in METHODS.items()
            ]
    return found


def _form(options: type[Any]) -> Group:
    """The options of the forms of data that have them in common."""
    names = [name for name, form in FORMS.items() if form.options is options]
    return Group(f"data.options of {', '.join(names)}", _summary(options), _fields("data.options", options))


def _fields(prefix: str, cls: Any) -> tuple[Setting, ...]:
    """The fields of a section; tables in it are groups of their own."""
    schema, meanings = _schema(cls), _described(cls, "Attributes")
    return tuple(
        Setting(
            key,
            _words(NAMES[key]) if key in NAMES else _values(schema[field.name]),
            _default(field),
            meanings[field.name],
        )
        for field in dataclasses.fields(cls)
        if field.name not in ("partition", "settings", "options") and (key := f"{prefix}.{field.name}")
    )


def _options(model: str) -> tuple[Setting, ...]:
    meanings = _described(MODELS[model], "Args")
    return tuple(
        Setting(
            f"model.options.{name}",
            _values(TypeAdapter(parameter.annotation).json_schema()),
            _toml(parameter.default),
            meanings[name],
        )
        for name, parameter in options_of(model).items()
    )


def _schema(cls: Any) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = TypeAdapter(cls).json_schema()["properties"]
    return properties


def _method_note(method: str) -> str:
    presets = [
        f"preset ``{name}``: " + ", ".join(f"{key} = {_toml(value)}" for key, value in values.items())
        for name, values in PRESETS[method].items()
    ]
    return "; ".join([_summary(METHODS[method]).rstrip("."), *presets]) + "."


TYPES = {
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "string": "text",
    "array": "array",
    "object": "table",
}
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def _values(schema: Mapping[str, Any]) -> str:
    """A JSON schema's type in words."""
    several = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    if several:
        return " or ".join(_values(option) for option in several)
    if "enum" in schema:
        return _words(schema["enum"])
    bounds = [f"{words} {schema[bound]:g}" for bound, words in BOUNDS.items() if schema.get(bound, LARGEST) != LARGEST]
    return ", ".join([TYPES[schema["type"]], *bounds])


def _words(values: Iterable[Any]) -> str:
    return ", ".join(_toml(value) for value in values)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _toml(field.default)
    return REQUIRED if field.default_factory is dataclasses.MISSING else _toml(field.default_factory())


def _toml(value: Any) -> str:
    """A value as TOML writes it, in one line."""
    if value is None:
        return NOT_SET
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return tomli_w.dumps({"x": value}).partition("=")[2].strip()


def _summary(of: Callable[..., Any]) -> str:
    """The first paragraph of a docstring, in one line."""
    return _plain(" ".join((inspect.getdoc(of) or "").partition("\n\n")[0].split()))


def _described(of: Callable[..., Any], section: str) -> dict[str, str]:
    """Name -> text of a docstring's ``Attributes:`` or ``Args:``."""
    text = inspect.getdoc(of) or ""
    block = re.search(rf"^{section}:\n((?:[ \t]+.*\n?|\n)+)", text, re.MULTILINE)
    found: dict[str, list[str]] = {}
    for line in block.group(1).splitlines() if block else ():
        if entry := re.match(r" {4}(\w+): (.*)", line):
            found[entry[1]] = [entry[2]]
        elif found and line.strip():
            found[next(reversed(found))].append(line.strip())
    return {name: _plain(" ".join(lines)) for name, lines in found.items()}


def _plain(text: str) -> str:
    """Without reStructuredText's roles: what they name stays."""
    return re.sub(r":\w+:`([^`]+)`", r"``\1``", text)
