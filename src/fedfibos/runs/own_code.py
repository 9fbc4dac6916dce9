"""What of a run is the user's own code: noted, compared, and kept beside the record."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedfibos.common.atomic_files import write_whole
from fedfibos.common.user_code import is_own, module_file, source_sha256
from fedfibos.data.forms.form import form_of
from fedfibos.runs.files import CODE


def own_code(config: str) -> dict[str, Any]:
    """For ``environment.json``: name -> SHA-256 of its file, of each name in a TOML text; nothing without any."""
    sources = {name: source_sha256(key, name) for key, name in _names(config).items()}
    return {"own": sources} if sources else {}


def keep_code(run: Path, config: str) -> None:
    """Copies of the modules that an experiment names: a run is looked at from elsewhere too, and later."""
    for name in _names(config).values():
        if (found := module_file(name)) is not None:
            file, place = found
            (run / CODE / place).parent.mkdir(parents=True, exist_ok=True)
            write_whole(run / CODE / place, file.read_bytes())


def warn_of_changes(run: Path, latest: Mapping[str, Any], own: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """Name the files of a user's own code that are not those that a run's environment tells of."""
    for name in changed_code(latest, own):
        warn(f"the file of {name} has changed since {run} was last run: this may be another experiment")


def changed_code(latest: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Names of a user's own code whose file is not the one that an environment tells of."""
    known = latest.get("own", {})
    return [name for name, digest in own.get("own", {}).items() if known.get(name) != digest]


def _names(config: str) -> dict[str, str]:
    """Key -> ``module:function``."""
    values = tomllib.loads(config)
    names = {f"{table}.name": values.get(table, {}).get("name") for table in ("data", "task", "model", "method")}
    names["data.partition.scheme"] = values.get("data", {}).get("partition", {}).get("scheme")
    if form_of(names["data.name"]) is not None:  # a path follows the colon
        del names["data.name"]
    return {key: name for key, name in names.items() if is_own(name)}
