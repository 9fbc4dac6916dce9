"""A study: one base experiment, a grid of named variants, several seeds.

A study file names the experiment that all runs start from and what differs::

    base = "base.toml"           # an experiment; study = "other.toml" derives from another study instead
    seeds = [0, 1, 2]

    [all]                        # overrides of the base that hold in every run
    federation.rounds = 200

    [grid.split.classes-2]       # axis "split", variant "classes-2": tables as in an experiment file
    data.partition = { scheme = "pathological", classes_per_client = 2 }

    [grid.method.fedfibos]
    method.name = "fedfibos"

A cell is one variant of every axis; a run is a cell and a seed, in the directory ``classes-2/fedfibos/seed-0``.
A derived study replaces the axes, seeds and base that it names; its ``[all]`` overrides that of the study behind it.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedfibos.common.dotted_keys import flat
from fedfibos.common.formatting import count_of
from fedfibos.common.validation import ExperimentError, check_name, toml_text
from fedfibos.config.experiment import Experiment, load_experiment, to_toml
from fedfibos.config.layers import Layer, based_on, read_toml
from fedfibos.config.left_behind import left_behind
from fedfibos.config.replaced import replaced
from fedfibos.config.sections import SECTIONS

KEYS = ("base", "study", "seeds", "all", "grid")

Grid = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Axis -> variant -> tables of overrides."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        cell: The variant of every axis.
        experiment: What is run, seed included.
    """

    cell: tuple[str, ...]
    experiment: Experiment

    @property
    def folder(self) -> Path:
        """Its run directory, below the study's."""
        return Path(*self.cell, f"seed-{self.experiment.seed}")


@dataclass(frozen=True)
class Study:
    """All runs of a study: seed after seed, so that a part of them compares all cells.

    Attributes:
        axes: Names of the grid's axes.
        runs: Every cell with every seed.
        notes: What one axis, or the command line, replaces of what another says: one line each.
    """

    axes: tuple[str, ...]
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...] = ()


def load_study(path: Path | str, overrides: Sequence[str] = (), only: Sequence[str] = ()) -> Study:
    """Read a study file; every run's settings are checked.

    Args:
        path: The study file.
        overrides: ``section.key=value``, for every run; no key that the grid or the seeds decide.
        only: ``axis=variant`` or ``axis=variant,variant``: the part of the grid to keep; ``seed=0,1`` too.

    Raises:
        ExperimentError: In one line: the file and, where it lies there, the cell; what was got, what was wanted.
    """
    path = Path(path)
    file = _read(path, ())
    grid, seeds = _selected(file, only)
    _check_overrides(overrides, grid)
    runs, notes = [], dict.fromkeys(replaced(grid))
    for seed in seeds:
        for cell in itertools.product(*grid.values()):
            layers = list(file.all)
            for axis, variant in zip(grid, cell, strict=True):
                layers.append(Layer(f"{path}: {axis} {variant!r}", dict(grid[axis][variant])))
            experiment = load_experiment(file.base, [*layers, *overrides])
            if overrides:
                chosen = {axis: grid[axis][variant] for axis, variant in zip(grid, cell, strict=True)}
                _check_kept(load_experiment(file.base, layers), experiment, chosen, overrides)
                notes |= dict.fromkeys(left_behind(file.base, overrides, experiment, layers))
            runs.append(PlannedRun(cell, replace(experiment, seed=seed)))
    _check_different(runs)
    return Study(tuple(grid), tuple(runs), tuple(notes))


def _check_different(runs: Sequence[PlannedRun]) -> None:
    """Refuse two cells that are one experiment: a later axis has replaced what an earlier one says of them."""
    known: dict[str, PlannedRun] = {}
    for run in runs:
        other = known.setdefault(to_toml(run.experiment), run)
        if other is not run:
            raise ExperimentError(
                f"the study's runs {other.folder} and {run.folder} are the same experiment: an axis sets what another "
                "axis tells them apart by"
            )


def _check_overrides(overrides: Sequence[str], grid: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse an override of what tells the runs apart: the table would say one thing and the runs another."""
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key == "seed":
            raise ExperimentError("command line: a study's seeds are chosen with --only seed=..., got seed=...", "seed")
        for axis, variants in grid.items():
            for variant, settings in variants.items():
                for own in flat(settings):
                    if f"{key}.".startswith(f"{own}.") or f"{own}.".startswith(f"{key}."):
                        raise ExperimentError(f"command line: {key} is set by {axis} {variant!r} of the study", key)


def _check_kept(before: Experiment, after: Experiment, chosen: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Refuse overrides that change what a variant sets by another key (``local.steps`` takes ``local.epochs`` away)."""
    old, new = (flat(tomllib.loads(to_toml(experiment))) for experiment in (before, after))
    for axis, settings in chosen.items():
        for own in flat(settings):
            for key in [key for key in old if f"{key}.".startswith(f"{own}.")]:
                if new.get(key) != old[key]:
                    raise ExperimentError(
                        f"command line: {', '.join(overrides)} changes {key}, which {axis} of the study sets", key
                    )


@dataclass(frozen=True)
class _File:
    """A study file over those that it derives from."""

    base: Path
    seeds: tuple[int, ...]
    all: tuple[Layer, ...] = ()
    grid: Grid = field(default_factory=dict)


def _read(path: Path, derived: tuple[Path, ...]) -> _File:
    if path.resolve() in derived:
        raise ExperimentError(f"{path}: study must not lead back to the same file")
    values = _tables(path)
    try:
        for key in values:
            check_name("a key of a study", key, KEYS)
        if not {"base", "study"} & values.keys():
            raise ValueError("a study must name its base (an experiment) or the study it derives from, got neither")
        if "seed" in _table("all", values.get("all", {})):
            raise ValueError("all must not set seed: seeds are given by seeds = [0, 1, 2]")
        for key in {"base", "study"} & values.keys():
            if not isinstance(values[key], str):
                raise ValueError(f"{key} must be the name of a file, got {toml_text(values[key])}")
        seeds, grid = _checked_seeds(values.get("seeds")), _checked_grid(values.get("grid", {}))
        overrides = (Layer(str(path), _table("all", values["all"])),) if "all" in values else ()
    except ValueError as error:
        raise ExperimentError(f"{path}: {error}") from None
    base = based_on(path, "base", values["base"]) if "base" in values else None
    if "study" not in values:
        assert base is not None
        return _File(base, seeds or (load_experiment(base).seed,), overrides, grid)
    before = _read(based_on(path, "study", values["study"]), (*derived, path.resolve()))
    return _File(base or before.base, seeds or before.seeds, (*before.all, *overrides), {**before.grid, **grid})


def _tables(path: Path) -> dict[str, Any]:
    """What is in a study file; a folder and an experiment are told apart from one."""
    if path.is_dir():
        raise ExperimentError(f"{path}: is a folder, wanted a study file")
    values = read_toml(path)
    if values.keys() & SECTIONS.keys() and not values.keys() & set(KEYS[1:]):
        raise ExperimentError(f"{path}: is an experiment, wanted a study (grid, seeds): fedfibos run runs it")
    return values


def _checked_seeds(seeds: object) -> tuple[int, ...]:
    if seeds is None:
        return ()
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ValueError(f"seeds must be an array of integers from 0, got {toml_text(seeds)}")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must differ, got {seeds}")
    return tuple(seeds)


def _checked_grid(grid: object) -> Grid:
    for axis, variants in _table("grid", grid).items():
        if axis == "seed":
            raise ValueError("grid.seed is not an axis: seeds are given by seeds = [0, 1, 2]")
        if not _table(f"grid.{axis}", variants):
            raise ValueError(f"grid.{axis} must have at least one variant, got none")
        for variant, values in variants.items():
            if "/" in variant or variant.startswith("."):
                raise ValueError(f"a variant becomes a folder's name, got {variant!r} in grid.{axis}")
            if "seed" in _table(f"grid.{axis}.{variant}", values):
                raise ValueError(f"grid.{axis}.{variant} must not set seed: seeds are given by seeds = [0, 1, 2]")
    return _table("grid", grid)


def _table(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a table, got {toml_text(value)}")
    return value


def _selected(file: _File, only: Sequence[str]) -> tuple[Grid, tuple[int, ...]]:
    """The part of the grid and of the seeds that ``only`` names."""
    chosen: dict[str, list[str]] = {}
    for text in only:
        axis, equals, names = text.partition("=")
        wanted = names.split(",")
        try:
            if not equals:
                raise ValueError(f"a selection must be axis=variant, got {text!r}")
            check_name("the axis of a selection", axis, [*file.grid, "seed"])
            known = file.grid.get(axis) or {str(seed): {} for seed in file.seeds}
            for name in wanted:
                if name not in known and (other := name.partition("="))[1] and other[0] in (*file.grid, "seed"):
                    raise ValueError(f"--only takes one axis, got {text!r}: give --only {name} as an option of its own")
                check_name(f"a selection of {axis}", name, known)
        except ValueError as error:
            raise ExperimentError(str(error)) from None
        chosen.setdefault(axis, []).extend(wanted)
    grid = {
        axis: {name: values for name, values in variants.items() if name in chosen.get(axis, variants)}
        for axis, variants in file.grid.items()
    }
    return grid, tuple(seed for seed in file.seeds if str(seed) in chosen.get("seed", [str(seed)]))


def describe_grid(study: Study) -> str:
    """How many runs, and over which axes, in one line."""
    seeds = sorted({run.experiment.seed for run in study.runs})
    variants = []
    for position, axis in enumerate(study.axes):
        names = dict.fromkeys(run.cell[position] for run in study.runs)
        variants.append(f"{len(names)} {axis}")
    runs, of_seeds = count_of(len(study.runs), "run"), count_of(len(seeds), "seed")
    return f"{runs}: {' × '.join([*variants, of_seeds])} ({', '.join(map(str, seeds))})"
