"""Settings in layers: tables from files and from the command line, later ones over earlier ones."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fedfibos.common.validation import ExperimentError
from fedfibos.config.device_layers import devices_over
from fedfibos.data.partition import Partition

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


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ExperimentError: It cannot be read, or is not TOML in UTF-8.
    """
    try:
        return toml_in(_content(path), str(path))
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror}") from None


def toml_in(content: bytes, source: str) -> dict[str, Any]:
    """The tables of a TOML file's content.

    Raises:
        ExperimentError: It is not TOML in UTF-8.
    """
    try:
        return _parsed(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ExperimentError(
            f"{source}: is not UTF-8 text, as TOML must be: byte {error.start} is 0x{error.object[error.start]:02x}"
        ) from None
    except ValueError as error:
        raise ExperimentError(f"{source}: is not valid TOML: {error}") from None


LARGEST = 2**24
"""Bytes of an experiment file."""

DEEPEST = 16
"""Tables and arrays within each other; ours have four."""


def _content(path: Path) -> bytes:
    """The bytes of a regular file of a size that people write.

    Raises:
        ExperimentError: It is something else.
        OSError: It cannot be read.
    """
    if str(path) == "-":
        raise ExperimentError("-: standard input is not read, wanted the name of an experiment file")
    if path.is_dir():
        raise ExperimentError(f"{path}: is a folder, wanted an experiment file or a run directory")
    if path.exists() and not path.is_file():
        raise ExperimentError(f"{path}: is no regular file, wanted an experiment file")
    if path.is_file() and (size := path.stat().st_size) > LARGEST:
        raise ExperimentError(f"{path}: has {size:,} bytes, wanted an experiment file (at most {LARGEST:,})")
    return path.read_bytes()


def _parsed(text: str) -> dict[str, Any]:
    """The tables of TOML.

    Raises:
        ValueError: It is none, or nested deeper than anything here reads.
    """
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level: list[Any] = [values]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise ValueError(f"it is nested more than {DEEPEST} deep")
    return values


def read_layers(path: Path, derived: tuple[Path, ...] = ()) -> list[Layer]:
    """An experiment file's layer behind those of its bases.

    Args:
        path: The file.
        derived: Files that have this one as their base.

    Raises:
        ExperimentError: A file that cannot be read, is a study, or has itself as a base.
    """
    if "\0" in str(path):
        raise ExperimentError(f"{str(path)!r}: the name of a file must not have a null character")
    if path.resolve() in derived:
        raise ExperimentError(f"{path}: base must not lead back to the same file")
    values = read_toml(path)
    if "grid" in values or "seeds" in values:
        raise ExperimentError(
            f"{path}: is a study (it has a grid or seeds), wanted an experiment: fedfibos sweep runs it"
        )
    base = values.pop("base", None)
    if base is None:
        return [Layer(str(path), values)]
    if not isinstance(base, str):
        raise ExperimentError(f"{path}: base must be the name of a file, got {base!r}")
    return [*read_layers(based_on(path, "base", base), (*derived, path.resolve())), Layer(str(path), values)]


def based_on(path: Path, key: str, name: str) -> Path:
    """The file that a key of another file names, beside it.

    Raises:
        ExperimentError: There is none.
    """
    other = path.parent / name
    if "\0" not in name and not other.exists():
        raise ExperimentError(f"{path}: {key} = {name!r}: there is no {other}")
    return other


def as_layers(overrides: Sequence[str | Layer]) -> Iterator[Layer]:
    """Overrides as layers; those of one command line are one: their order matters for steps beside epochs alone."""
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
        raise ExperimentError(f"an override must be section.key=value, got {text[:200]!r}")
    if len(pieces) > DEEPEST:
        raise ExperimentError(f"{COMMAND_LINE}: {key[:40]}... is nested more than {DEEPEST} deep")
    value: Any = _literal(literal.strip())
    for piece in reversed(pieces):
        value = {piece: value}
    return cast(dict[str, Any], value)


def _literal(text: str) -> Any:
    """A TOML literal, a number such as ``.1`` or ``1.``, or else the text itself."""
    try:
        parsed = _parsed(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return float(text) if re.fullmatch(r"[+-]?(\d+\.|\.\d+)", text) else text
    except ValueError as error:  # nested too deeply, or an integer of thousands of digits
        raise ExperimentError(f"{COMMAND_LINE}: {text[:40]!r}...: {error}") from None
    return parsed["value"] if len(parsed) == 1 else text


NESTED = ("partition", "options")
"""Tables within a section that are merged key by key; others (capacities) are replaced as a whole."""

CHOSEN_BY = {
    "method": ("name", None),
    "model": ("name", None),
    "task": ("name", "classification"),
    "partition": ("scheme", Partition().scheme),
}
"""Table -> the key that says what its other keys are about, and its default."""


def _kept(section: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What of a section's earlier settings still holds beside later ones."""
    chooses, default = CHOSEN_BY.get(section, ("", None))
    if section == "data" and new.get("name", old.get("name")) != old.get("name"):
        return {key: value for key, value in old.items() if key != "options"}
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


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a later layer over those of the earlier ones."""
    result = dict(old)
    for section, content in new.items():
        before = result.get(section)
        if not (isinstance(before, dict) and isinstance(content, dict)):
            result[section] = content
            continue
        kept = _kept(section, before, content)
        result[section] = {**kept, **content}
        for nested in NESTED:
            if isinstance(kept.get(nested), dict) and isinstance(content.get(nested), dict):
                result[section][nested] = {**_kept(nested, kept[nested], content[nested]), **content[nested]}
        if section == "federation" and "devices" in content:
            result[section]["devices"] = devices_over(kept.get("devices"), content["devices"])
    return result


def source_of(layers: Sequence[Layer], key: str) -> str:
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
