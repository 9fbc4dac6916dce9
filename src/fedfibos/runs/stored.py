"""Files of run directories wherever they are kept: as files, or in an archive beside one of the folders above.

``results/small/cifar10/high/seed-0/final.json`` is that file or, where there is no such run directory, an entry of
``results/small/cifar10.tar.zst``. So a study is read alike packed and unpacked, and a run that is added lies beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedfibos.config.experiment import Experiment, recorded_experiment
from fedfibos.config.layers import toml_in
from fedfibos.runs.archive import SUFFIX, archive_of, folder_of, read_archive
from fedfibos.runs.files import CONFIG
from fedfibos.runs.reading import RecordError, parse_object


def stored_bytes(path: Path) -> bytes:
    """The content of a run directory's file.

    Raises:
        OSError: There is none, or it cannot be read.
        RecordError: The archive is damaged.
    """
    content = None if (path.parent / CONFIG).exists() else _in_archive(path)
    return path.read_bytes() if content is None else content


def is_stored(path: Path) -> bool:
    """Whether a run directory has that file.

    Raises:
        RecordError: The archive is damaged.
    """
    return path.exists() or (not (path.parent / CONFIG).exists() and _in_archive(path) is not None)


DEEPEST = 4
"""How far below a study's folder its runs lie, as in split/mix/method/seed."""


def no_run(path: Path) -> RecordError:
    """That a path is no run directory, in one line: what it is, and what to name instead."""
    wanted = f"{path} must be a run directory"
    if not path.exists():
        return RecordError(f"{wanted}, it does not exist")
    if not path.is_dir():
        return RecordError(f"{wanted}, it is a file")
    below = (found for depth in range(1, DEEPEST + 1) for found in sorted(path.glob("*/" * depth + CONFIG)))
    inner = next((found.parent for found in below), None)
    return RecordError(f"{wanted}, it has no {CONFIG}" + (f"; it holds some, such as {inner}" if inner else ""))


def stored_below(folder: Path, name: str) -> list[Path]:
    """All files of that name in run directories below a folder (or archive), in order.

    Raises:
        RecordError: An archive is damaged.
    """
    folder = folder_of(folder) if folder.name.endswith(SUFFIX) and folder.is_file() else folder
    found = set(folder.rglob(name))
    for archive, base in _archives(folder):
        inside = (base / entry for entry in read_archive(archive))
        found |= {path for path in inside if path.name == name and folder in path.parents and is_stored(path)}
    return sorted(found)


def read_object(path: Path, shape: TypeAdapter[Any]) -> dict[str, Any]:
    """The object that a JSON file of a run directory holds.

    Args:
        path: The file.
        shape: What the object must have; it may have more.

    Raises:
        RecordError: It cannot be read or is damaged.
    """
    try:
        content = stored_bytes(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_object(str(path), content, shape)


def settings_of(run: Path) -> dict[str, Any]:
    """The tables of a run directory's ``config.toml``, of a simulation's or a Flower app's.

    Raises:
        RecordError: It cannot be read.
        ExperimentError: It is not TOML.
    """
    return toml_in(_config(run), str(run / CONFIG))


def experiment_of(run: Path) -> Experiment:
    """What was run, of a run directory of the simulator.

    Raises:
        RecordError: Its ``config.toml`` cannot be read.
        ExperimentError: That is not one of this version.
    """
    return recorded_experiment(_config(run), run / CONFIG)


def _config(run: Path) -> bytes:
    try:
        return stored_bytes(run / CONFIG)
    except OSError as error:
        raise RecordError(f"{run / CONFIG}: cannot be read: {error.strerror}") from None


def _in_archive(path: Path) -> bytes | None:
    for folder in path.parents:
        if folder.name and (archive := archive_of(folder)).is_file():
            content = read_archive(archive).get(path.relative_to(folder).as_posix())
            if content is not None:
                return content
    return None


def _archives(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The archives that hold something of a folder, each with the folder that it stands for."""
    for base in (folder, *folder.parents):
        if base.name and archive_of(base).is_file():
            yield archive_of(base), base
    for archive in folder.rglob(f"*{SUFFIX}"):
        yield archive, folder_of(archive)
