"""Which forms there are: ``form:PATH`` in ``data.name``, with ``data.options`` of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfibos.common.validation import check_name, checked
from fedfibos.data.forms.columns import TableOptions
from fedfibos.data.forms.folder import FolderOptions, read_folder
from fedfibos.data.forms.hf import read_hf
from fedfibos.data.forms.leaf import LeafOptions, read_leaf
from fedfibos.data.forms.npz import NpzOptions, read_npz
from fedfibos.data.forms.table import read_csv, read_parquet
from fedfibos.data.forms.targets import CLASSES, Wanted
from fedfibos.data.split import Split


@dataclass(frozen=True)
class Form:
    """One form of data.

    Attributes:
        options: Dataclass of its options.
        read: The split at a path, with such options, and with targets as a task wants them.
        place: ``file``, ``folder``, or ``file or folder``.
    """

    options: type[Any]
    read: Callable[[Path, Any, Wanted], Split]
    place: str


FORMS: Mapping[str, Form] = {
    "folder": Form(FolderOptions, read_folder, "folder"),
    "csv": Form(TableOptions, read_csv, "file"),
    "parquet": Form(TableOptions, read_parquet, "file"),
    "npz": Form(NpzOptions, read_npz, "file"),
    "leaf": Form(LeafOptions, read_leaf, "file or folder"),
    "hf": Form(TableOptions, read_hf, "folder"),
}
"""Every form. To add one: a module with its options and its reader, and a line here."""


def form_of(name: object) -> str | None:
    """The key of :data:`FORMS` that a data set's name begins with, before the first colon; None for another name.

    It goes before a user's module of that name.
    """
    before, colon, _ = name.partition(":") if isinstance(name, str) else ("", "", "")
    return before if colon and before in FORMS else None


def options_of_form(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the form that a name begins with: those given, checked, and the defaults.

    Raises:
        ValueError: An option that the form does not have, or a value that it cannot have.
    """
    form = FORMS[str(form_of(name))]
    for option in given:
        check_name(
            f"an option of {form_of(name)}:PATH", option, [field.name for field in dataclasses.fields(form.options)]
        )
    return dataclasses.asdict(checked(form.options, dict(given), "data.options"))


def read_form(name: str, data_folder: Path | None, options: Mapping[str, Any], wanted: Wanted = CLASSES) -> Split:
    """The split that ``form:PATH`` names.

    Args:
        name: ``form:PATH``. A relative path is looked for in the current folder, then in the data folder.
        data_folder: Where else to look, or None.
        options: Of the form.
        wanted: What the task wants as targets.

    Raises:
        FileNotFoundError: Nothing is there.
        ValueError: It is not what the form says; one line.
    """
    kind = str(form_of(name))
    form = FORMS[kind]
    chosen = checked(form.options, dict(options), "data.options")
    path = _located(name.partition(":")[2], data_folder, name)
    if not (("file" in form.place and path.is_file()) or ("folder" in form.place and path.is_dir())):
        found = "a folder" if path.is_dir() else "a file" if path.is_file() else "neither"
        raise ValueError(f"data.name = {name!r}: {path} must be a {form.place}, got {found}")
    return form.read(path, chosen, wanted)


def _located(text: str, data_folder: Path | None, name: str) -> Path:
    if not text.strip() or "\0" in text:
        raise ValueError(f"data.name = {name!r}: a path must follow the colon")
    path = Path(text).expanduser()
    places = [path] if path.is_absolute() or data_folder is None else [path, data_folder / path]
    for place in places:
        try:
            if place.exists():
                return place
        except OSError as error:
            raise ValueError(f"data.name = {name!r}: {place} cannot be read: {error.strerror}") from None
    looked = "" if path.is_absolute() else f" in the current folder {Path.cwd()}"
    if len(places) > 1:
        looked += f" or the data folder {data_folder}"
    raise FileNotFoundError(f"data.name = {name!r}: there is no {path}{looked}")
