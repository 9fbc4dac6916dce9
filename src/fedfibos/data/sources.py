"""The data sets that are known, where each is found, and how one is loaded by its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedfibos.common.draws import fixed_draws
from fedfibos.common.user_code import find
from fedfibos.data import ag_news, digits
from fedfibos.data.cifar import CIFAR10, CIFAR100
from fedfibos.data.forms.form import form_of, options_of_form, read_form
from fedfibos.data.forms.targets import CLASSES, Wanted
from fedfibos.data.mnist import FASHION_MNIST, MNIST
from fedfibos.data.split import Split


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Attributes:
        find: The file or folder to read, given the data folder (or None); None where there is none.
        read: The split in that file or folder.
        wanted: Which file to put where; one line.
        official: Training and test examples that the data set has, as it was published.
    """

    find: Callable[[Path | None], Path | None]
    read: Callable[[Path], Split]
    wanted: str
    official: tuple[int, int]


DATA_SETS = {
    "digits": Source(digits.find, digits.read, digits.WANTED, (digits.NUM_TRAIN, digits.NUM_TEST)),
    "mnist": Source(MNIST.find, MNIST.read, MNIST.wanted, MNIST.rows),
    "fashion_mnist": Source(FASHION_MNIST.find, FASHION_MNIST.read, FASHION_MNIST.wanted, FASHION_MNIST.rows),
    "cifar10": Source(CIFAR10.find, CIFAR10.read, CIFAR10.wanted, CIFAR10.rows),
    "cifar100": Source(CIFAR100.find, CIFAR100.read, CIFAR100.wanted, CIFAR100.rows),
    "ag_news": Source(ag_news.find, ag_news.read, ag_news.WANTED, (120_000, 7_600)),
}
"""Every known data set. To add one: a module with ``find`` and ``read``, and a line here."""


@dataclass(frozen=True)
class Found:
    """A line of the catalogue.

    Attributes:
        name: As given to ``load``.
        where: The file or folder it would be read from, or None.
        missing: Where there is none: which file to put where; otherwise None.
    """

    name: str
    where: Path | None
    missing: str | None


def load(
    name: str,
    data_dir: Path | None = None,
    options: Mapping[str, Any] | None = None,
    wanted: Wanted = CLASSES,
) -> Split:
    """Load a data set: its train and test split.

    Args:
        name: A key of ``DATA_SETS``; ``form:PATH`` with a key of ``FORMS``, such as ``csv:measurements.csv``; or a
            user's own function, ``module:function``: it is called with the data folder or None, and the options by
            name, and gives a :class:`Split`.
        data_dir: The data folder; default: the environment variable FEDFIBOS_DATA. Where the data set
            has a usual place of its own (Debian's for Fashion-MNIST), that is looked at next.
        options: Of a form, or of a user's own function.
        wanted: What the task wants as targets of a form: the same column is a class or a number.

    Raises:
        ValueError: Unknown name or option (names the nearest), or files (or what a user's function gives) that are not
            what they should be.
        FileNotFoundError: The data set is not there; says which file to put where.
    """
    folder, options = _data_folder(data_dir), options or {}
    if form_of(name) is not None:
        return replace(read_form(name, folder, options, wanted), name=name)
    source = find("data.name", name, DATA_SETS)
    if not isinstance(source, Source):
        with fixed_draws():  # it is called again when a run is resumed, evaluated or exported
            split = source(folder, **options)
        if not isinstance(split, Split):
            raise ValueError(f"data.name = {name!r}: it must give a fedfibos.data.Split, got {type(split).__name__}")
        return replace(split, name=name)
    check_options(name, options)
    where = source.find(folder)
    if where is None:
        raise FileNotFoundError(f"data set {name!r} was not found: {source.wanted}; {_told(folder)}")
    return source.read(where)


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a data set: of a form checked and with its defaults, of a user's own function as they are given.

    Raises:
        ValueError: An option that there is not, or a value that it cannot have.
    """
    if form_of(name) is not None:
        return options_of_form(name, options)
    if name in DATA_SETS and options:
        raise ValueError(f"data.options must be empty, as {name!r} has none, got {next(iter(options))}")
    return dict(options)


def incomplete(split: Split) -> list[str]:
    """A line for each part of a known data set that has other examples than were published: say so with any number."""
    if split.name not in DATA_SETS:
        return []
    parts = (("training", split.train), ("test", split.test))
    return [
        f"data set {split.name!r} has {len(data):,} {what} examples here, {official:,} were published "
        f"({100 * len(data) / official:.1f} %): say so with every number"
        for (what, data), official in zip(parts, DATA_SETS[split.name].official, strict=True)
        if len(data) != official
    ]


def catalogue(data_dir: Path | None = None) -> list[Found]:
    """Every known data set, where it was found, and what is missing; looks where ``load`` looks."""
    folder = _data_folder(data_dir)
    found = []
    for name, source in DATA_SETS.items():
        where = source.find(folder)
        found.append(Found(name, where, f"{source.wanted}; {_told(folder)}" if where is None else None))
    return found


def _data_folder(data_dir: Path | None) -> Path | None:
    if data_dir is not None:
        return data_dir
    from_environment = os.environ.get("FEDFIBOS_DATA")
    return Path(from_environment) if from_environment else None


def _told(folder: Path | None) -> str:
    if folder is None:
        return "no data folder was given (--data-dir or the environment variable FEDFIBOS_DATA)"
    return f"the data folder is {folder}" + ("" if folder.is_dir() else ", which is not a folder")
