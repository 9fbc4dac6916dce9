"""One experiment: every setting of a run, validated, and the TOML file it is written in."""

from __future__ import annotations

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import tomli_w
from pydantic.dataclasses import dataclass

from fedfibos.capacities import Capacities
from fedfibos.data.partition import Partition
from fedfibos.method import Method
from fedfibos.methods import METHODS
from fedfibos.models import options_of
from fedfibos.own import is_own
from fedfibos.sections import (
    CONFIG,
    Data,
    Evaluation,
    Federation,
    MethodChoice,
    ModelChoice,
    Run,
    Seed,
    field_names,
)
from fedfibos.training import LocalTraining
from fedfibos.validation import ExperimentError, check_name, checked, did_you_mean, listed

__all__ = ["Experiment", "ExperimentError", "Layer", "load_experiment", "to_toml"]


@dataclass(frozen=True, config=CONFIG)
class Experiment:
    """Every setting of a run.

    Attributes:
        model: The model.
        federation: Clients, rounds, capacities.
        method: The method and its hyperparameters.
        seed: Root of all random streams.
        data: The data set and its partition.
        local: How clients train.
        evaluation: When and how accuracy is measured.
        run: Checkpoints.
    """

    model: ModelChoice
    federation: Federation
    method: MethodChoice
    seed: Seed = 0
    data: Data = Data()
    local: LocalTraining = LocalTraining()
    evaluation: Evaluation = Evaluation()
    run: Run = Run()

    def build_method(self) -> Method:
        """The method with this experiment's hyperparameters."""
        return cast(Method, METHODS[self.method.name](**self.method.settings))

    def capacities(self) -> Capacities:
        """The capacity of every client in every round."""
        federation = self.federation
        fleet = (federation.capacities, federation.clients, federation.assignment)
        return Capacities(*fleet, self.seed, federation.assigned)


SECTIONS: Mapping[str, type[Any]] = {
    "data": Data,
    "model": ModelChoice,
    "federation": Federation,
    "method": MethodChoice,
    "local": LocalTraining,
    "evaluation": Evaluation,
    "run": Run,
}
"""The sections of an experiment file, in the order in which they are written."""


COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Layer:
    """Settings from one place; later layers override earlier ones.

    Attributes:
        source: Where they are written, for messages.
        values: Nested tables.
    """

    source: str
    values: dict[str, Any]


def load_experiment(path: Path | str, overrides: Sequence[str | Layer] = ()) -> Experiment:
    """Read an experiment file and apply overrides.

    A file may name another with ``base = "relative.toml"`` and then holds only what differs. Naming another
    method, preset, model or partition scheme than the base leaves the base's settings of it behind, and
    ``local.steps`` replaces the base's ``epochs`` (and the other way round).

    Args:
        path: The TOML file, or a run directory (its ``config.toml``).
        overrides: ``section.key=value``, where the value is a TOML literal and a bare word is text; or tables from
            elsewhere. Later ones override earlier ones.

    Raises:
        ExperimentError: In one line: the file, the key, what was got, what was wanted, the nearest valid name.
    """
    path = Path(path)
    layers = _files(path / "config.toml" if path.is_dir() else path, ())
    if path.is_dir() and "model" not in layers[-1].values:
        raise ExperimentError(
            f"{path} is the run directory of a Flower app, wanted one of the simulator (fedfibos export --app reads it)"
        )
    layers += _together(overrides)
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, layer.values)
        try:
            _check_keys(layer.values, merged)
        except ValueError as error:
            raise ExperimentError(f"{layer.source}: {error}") from None
    return _build(merged, layers, own_code=not path.is_dir() or bool(overrides))


def to_toml(experiment: Experiment) -> str:
    """The experiment as a file with every setting written out; loading it gives the same experiment."""
    values = dataclasses.asdict(experiment)
    values["federation"]["capacities"] = {str(c): s for c, s in experiment.federation.capacities.items()}
    values["method"] |= values["method"].pop("settings")
    sections = {name: values[name] for name in SECTIONS}
    return tomli_w.dumps(_without_none({"seed": experiment.seed, **sections}))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null: what is not set is not written."""
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def _files(path: Path, derived: tuple[Path, ...]) -> list[Layer]:
    """The file's layer behind those of its bases."""
    if path.resolve() in derived:
        raise ExperimentError(f"{path}: base must not lead back to the same file")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # bad TOML or bad UTF-8
        raise ExperimentError(f"{path}: is not valid TOML: {error}") from None
    if "grid" in values or "seeds" in values:
        raise ExperimentError(
            f"{path}: is a study (it has a grid or seeds), wanted an experiment: fedfibos sweep runs it"
        )
    base = values.pop("base", None)
    if base is None:
        return [Layer(str(path), values)]
    if not isinstance(base, str):
        raise ExperimentError(f"{path}: base must be the name of a file, got {base!r}")
    return [*_files(path.parent / base, (*derived, path.resolve())), Layer(str(path), values)]


def _together(overrides: Sequence[str | Layer]) -> Iterator[Layer]:
    """Overrides as layers; those of one command line are one, so that their order is of no account."""
    for typed, items in itertools.groupby(overrides, lambda item: isinstance(item, str)):
        if not typed:
            yield from cast(Iterator[Layer], items)
            continue
        values: dict[str, Any] = {}
        for text in cast(Iterator[str], items):
            given = _override(text)
            if isinstance(values.get("local"), dict) and isinstance(given.get("local"), dict):
                values["local"] = _unreplaced(values["local"], given["local"])
            values = _joined(values, given)
        yield Layer(COMMAND_LINE, values)


def _joined(old: Any, new: Any) -> Any:
    """Tables with the keys of both; of anything else the later."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: _joined(old.get(key), value) for key, value in new.items()}}


def _override(text: str) -> dict[str, Any]:
    """``section.key=value`` as nested tables."""
    key, equals, literal = text.partition("=")
    pieces = key.strip().split(".")
    if not equals or not all(pieces):
        raise ExperimentError(f"an override must be section.key=value, got {text!r}")
    value: Any = _literal(literal.strip())
    for piece in reversed(pieces):
        value = {piece: value}
    return cast(dict[str, Any], value)


def _literal(text: str) -> Any:
    """A TOML literal, a number such as ``.1`` or ``1.``, or else the text itself."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return float(text) if re.fullmatch(r"[+-]?(\d+\.|\.\d+)", text) else text
    return parsed["value"] if len(parsed) == 1 else text


NESTED = ("partition", "options")
"""Tables within a section that are merged key by key; others (capacities) are replaced as a whole."""

CHOSEN_BY = {"method": ("name", None), "model": ("name", None), "partition": ("scheme", Partition().scheme)}
"""Table -> the key that says what its other keys are about, and its default."""


def _kept(section: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What of a section's earlier settings still holds beside later ones."""
    chooses, default = CHOSEN_BY.get(section, ("", None))
    before = old.get(chooses, default)
    if new.get(chooses, before) != before:
        return {}
    if section == "method" and new.get("preset", old.get("preset")) != old.get("preset"):
        return {key: value for key, value in old.items() if key == "name"}
    return _unreplaced(old, new) if section == "local" else dict(old)


def _unreplaced(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of local training without those that later ones stand in for: steps for epochs, epochs for steps."""
    dropped = {"epochs" if key == "steps" else "steps" for key in new if key in ("steps", "epochs")} - new.keys()
    return {key: value for key, value in old.items() if key not in dropped}


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a later layer over those of the earlier ones."""
    merged = dict(old)
    for section, content in new.items():
        before = merged.get(section)
        if not (isinstance(before, dict) and isinstance(content, dict)):
            merged[section] = content
            continue
        kept = _kept(section, before, content)
        merged[section] = {**kept, **content}
        for nested in NESTED:
            if isinstance(kept.get(nested), dict) and isinstance(content.get(nested), dict):
                merged[section][nested] = {**_kept(nested, kept[nested], content[nested]), **content[nested]}
    return merged


def _check_keys(values: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Raise ValueError for a key that no section has; ``merged`` says which method and model are chosen."""
    keys = _known_keys(merged)
    for section, content in values.items():
        if section != "seed" and section not in SECTIONS:
            raise ValueError(_unknown(section, [*SECTIONS, "seed"], keys))
        if section == "seed":
            continue
        if not isinstance(content, dict):
            raise ValueError(f"{section} must be a table, got {content!r}")
        for key, value in content.items():
            paths = [f"{section}.{key}"]
            if f"{section}.{key}." in {known[: len(paths[0]) + 1] for known in keys}:
                if not isinstance(value, dict):
                    raise ValueError(f"{section}.{key} must be a table, got {value!r}")
                paths = [f"{section}.{key}.{inner}" for inner in value]
            for path in paths:
                table = path.rpartition(".")[0]
                if path not in keys and f"{section}.*" not in keys and f"{table}.*" not in keys:
                    siblings = [known for known in keys if known.startswith(f"{table}.")]
                    raise ValueError(_unknown(path, siblings, keys))


def _known_keys(merged: Mapping[str, Any]) -> list[str]:
    """Dotted names of all keys; ``section.*`` where they depend on a name that is not given."""
    keys = []
    for section, cls in SECTIONS.items():
        chosen = merged.get(section, {}).get("name") if isinstance(merged.get(section), dict) else None
        names = field_names(cls)
        if section == "data":
            names = ["name", *(f"partition.{name}" for name in field_names(Partition))]
        if section == "method":
            if chosen is not None:
                check_name("method.name", chosen, METHODS)
            names = ["name", "preset", *(field_names(METHODS[chosen]) if chosen is not None else "*")]
        if section == "model":
            names = ["name", "norm", "channels_last", *(_option_keys(chosen) if chosen is not None else "*")]
        keys += [f"{section}.{name}" for name in names]
    return keys


def _option_keys(model: Any) -> list[str]:
    """Keys of a model's options; any, where the model is the user's own."""
    return ["options.*"] if is_own(model) else [f"options.{name}" for name in options_of(model)]


def _unknown(path: str, siblings: Sequence[str], keys: Sequence[str]) -> str:
    """An unknown key, and the key of that name in another section, or the nearest beside it."""
    leaf = path.rpartition(".")[2]
    elsewhere = [key for key in keys if key.rpartition(".")[2] == leaf]
    near = f"; did you mean {elsewhere[0]!r}?" if elsewhere else did_you_mean(path, siblings)
    return f"unknown key {path!r}{near or '; it must be ' + listed(siblings)}"


def _build(merged: Mapping[str, Any], layers: Sequence[Layer], own_code: bool) -> Experiment:
    """Validate section by section; an error names the layer that wrote the value.

    ``own_code``: whether the user's own model and data are looked up; what a record says of them is taken as it is.
    """
    built: dict[str, Any] = {}
    try:
        built["seed"] = checked(Seed, merged.get("seed", 0), "seed")
        for section, cls in SECTIONS.items():
            values = dict(merged.get(section, {}))
            if section == "method":
                settings = {key: values.pop(key) for key in list(values) if key not in ("name", "preset")}
                values["settings"] = settings
            built[section] = checked(cls, values, section)
            if own_code and section in ("data", "model"):
                built[section] = _resolved(built[section], section)
    except ExperimentError as error:
        raise ExperimentError(f"{_source(layers, error.key)}: {error}") from None
    return Experiment(**built)


def _resolved(choice: Data | ModelChoice, section: str) -> Data | ModelChoice:
    try:
        return choice.resolved()
    except ExperimentError:
        raise
    except ValueError as error:
        raise ExperimentError(str(error), f"{section}.name") from error


def _source(layers: Sequence[Layer], key: str) -> str:
    """Where the value of a dotted key was last written; where it was not, its section or the last file."""
    pieces = key.split(".")
    for length in range(len(pieces), 0, -1):
        for layer in reversed(layers):
            value: Any = layer.values
            for piece in pieces[:length]:
                value = value.get(piece) if isinstance(value, dict) else None
            if value is not None:
                return layer.source
    return next(layer.source for layer in reversed(layers) if layer.source != COMMAND_LINE)
