"""``fedfibos export``: the submodel of a device class, from a run directory of the simulator or of a Flower app."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from rich.filesize import decimal
from torch import nn

from fedfibos.channels.costs import Bounded
from fedfibos.cli.terminal import warn
from fedfibos.common.formatting import first_line, percent
from fedfibos.common.inputs import Inputs
from fedfibos.common.norms import keeps_statistics
from fedfibos.data.images import ImageData
from fedfibos.export.formats import SPARSE, Exported, describe, export_submodel, submodel_module
from fedfibos.export.int8 import CALIBRATION, Int8, export_int8
from fedfibos.method import Method
from fedfibos.model import Model
from fedfibos.runs.checkpoint import At, Checkpoint, CheckpointStore
from fedfibos.runs.files import CONFIG
from fedfibos.runs.record import RunDirectory
from fedfibos.runs.stored import no_run
from fedfibos.simulation.reopen import reopen
from fedfibos.submodel import Submodel
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset

EXAMPLES = 64


@dataclass(frozen=True)
class Exportable:
    """A run at its last checkpoint, with what it takes to write one of its submodels.

    Attributes:
        model: Architecture and layout.
        method: Extracts the submodels.
        at: The checkpoint.
        seed: Root of the run's random streams.
        local: How its clients train.
        examples: Outputs are compared on these.
        calibration: Training examples for the statistics of normalisation; None where it keeps none.
        about: Metadata for the file.
        num_clients: Clients there are; None where only the devices know.
        fleet: Every capacity that the fleet has; nothing where it is not on record.
        capacities: Client -> its own capacity, where that is known and stays.
        budget: What capacities are shares of.
        limits: Capacity -> what bounds its slices besides, where the fleet is one of devices.
        test: Labelled examples; None where there are none.
        training: Examples to see ranges of activations on; None where there are none.
    """

    model: Model
    method: Method
    at: Checkpoint
    seed: int
    local: LocalTraining
    examples: Inputs
    calibration: Dataset | None
    about: Mapping[str, str]
    num_clients: int | None
    fleet: Collection[float]
    capacities: Mapping[int, float]
    budget: tuple[Bounded, ...]
    limits: Callable[[float], tuple[tuple[Bounded, int], ...]] = lambda capacity: ()
    test: Dataset | None = None
    training: Dataset | None = None


def of_run(run: Path, data_dir: Path | None, at: At = "last") -> Exportable:
    """A run of the simulator."""
    if "model" not in _settings(run):
        raise ValueError(f"{run} is the run directory of a Flower app: pass --app, the app's file")
    opened = reopen(run, data_dir=data_dir, warn=warn, at=at)
    world, experiment = opened.world, opened.experiment
    calibration, own = None, {}
    if keeps_statistics(world.model.module):
        calibration = world.population.calibration(experiment.evaluation.recalibration_samples)
    if experiment.federation.assignment == "fixed":  # one redrawn each round is nobody's own
        ids = world.population.ids
        own = dict(zip(ids, world.population.capacities.of(ids, 0), strict=True))
    about = {"method": experiment.method.name, "model": experiment.model.name, **_inputs(world.split.test)}
    about["classes"] = json.dumps(world.split.classes, ensure_ascii=False)
    if not world.model.task.classes:
        about["task"] = experiment.task.name
    return Exportable(
        world.model,
        world.method,
        opened.checkpoint,
        experiment.seed,
        experiment.local,
        _some(world.split.test),
        calibration,
        about,
        len(world.population),
        world.population.capacities.table,
        own,
        experiment.federation.budget,
        world.population.limits,
        world.split.test,
        world.population.calibration(CALIBRATION),
    )


def of_app(run: Path, app: Path, at: At = "last") -> Exportable:
    """The server's run directory of a Flower app, whose file has the model (``fedfibos flower new``).

    Outputs are compared on the app's test examples, or on its example batch where it has none. Statistics of batch
    normalisation are recomputed on what its function ``calibration`` gives, as the server app is given it.
    """
    settings = _settings(run)
    if "model" in settings:
        raise ValueError(f"{run} is a run directory of the simulator: leave out --app")
    sys.path.insert(0, str(app.parent))  # for what the app imports, now or when it is called
    try:
        return _of_app(run, app, settings, at)
    finally:
        sys.path.remove(str(app.parent))


def _of_app(run: Path, app: Path, settings: dict[str, Any], at: At) -> Exportable:
    fleet = _load(app)
    config = {"seed": settings["seed"], **settings.get("app", {})}
    for section in ("method", "local", "server", "federation", "privacy"):
        config |= {f"{section}.{key}": value for key, value in settings.get(section, {}).items()}
    task = _call(app, lambda: fleet.task(config))
    if task.federation.scores == "client":
        raise ValueError("the scores of this run are with its clients: the server cannot say what a client holds")
    checkpoint = CheckpointStore(run, best=task.federation.best).load(at, task.model.layout, warn)
    test = _call(app, lambda: fleet.test(config)) if hasattr(fleet, "test") else None
    examples = task.model.example if test is None else _some(test)
    if examples is None:
        raise ValueError(f"{app} must have test examples or an example batch to compare outputs on, got neither")
    calibration = _call(app, lambda: fleet.calibration(config)) if hasattr(fleet, "calibration") else None
    if calibration is None and keeps_statistics(task.model.module):
        raise ValueError(f"{app} must have calibration(config), as its model has batch normalisation; it has none")
    noted: dict[int, float] = {}
    limits: dict[float, tuple[tuple[Bounded, int], ...]] = {}
    for record in RunDirectory(run).rounds():
        noted |= {int(client): capacity for client, capacity in record.get("capacities", {}).items()}
        if record["round"] <= checkpoint.round:
            limits |= {float(c): tuple(sorted(of.items())) for c, of in record.get("limits", {}).items()}
    about = {"method": settings["method"]["name"], "model": type(task.model.module).__name__}
    return Exportable(
        task.model,
        task.method,
        checkpoint,
        task.seed,
        task.local,
        examples,
        calibration,
        about,
        None,
        set(noted.values()),
        noted,
        task.federation.budget,
        lambda capacity: limits.get(capacity, ()),
        test=test,
        training=calibration,
    )


def capacity_of(source: Exportable, capacity: float | None, client: int | None) -> float:
    """The capacity that is asked for; where none is, the client's own."""
    if capacity is not None:
        return capacity
    if client is None:
        raise ValueError("export must have --capacity, or --client N for the capacity of client N, got neither")
    if client not in source.capacities:
        last = max(source.capacities, default=None)
        there = "there is none" if last is None else f"there are clients up to {last}"
        raise ValueError(f"client {client} has no capacity on record, {there}: name another, or pass --capacity too")
    return source.capacities[client]


def write(
    source: Exportable,
    capacity: float,
    client: int | None,
    out: Path,
    batch_size: int | None,
    console: Console,
    int8: Int8 | None = None,
) -> None:
    """Write the submodel of a capacity (of a client, where submodels are personal), and say what was written."""
    module, submodel, about = _prepared(source, capacity, client)
    if int8 is None:
        gives = source.model.task.gives
        done = export_submodel(module, submodel, source.examples, out, about, batch_size=batch_size, output=gives)
        size, found = done.bytes, f"outputs agree to {done.difference:.1g}"
    else:
        if source.test is None:
            raise ValueError("--int8 says what it does to the accuracy: the app must have test(config), it has none")
        given = (source.examples, out, int8, source.test, source.training, about)
        task = source.model.task
        small = export_int8(module, submodel, *given, batch_size=batch_size, task=task)
        done, size = small.whole, small.bytes
        shown = percent if task.primary.share else _number
        found = (
            f"on {small.tested:,} test examples {task.primary.name} {shown(small.after)}, {shown(small.before)} before "
            f"int8, which took {decimal(done.bytes)}"
        )
    _say(
        console,
        f"{out}: {done.parameters:,} of {source.model.layout.size:,} parameters held, {done.stored:,} stored, "
        f"{decimal(size)}; read back with {done.read_with}, {found}",
    )
    if submodel.indicator is not None:
        smaller = "faster" if out.name.endswith(SPARSE) else "smaller or faster"
        _say(
            console,
            f"this is a mask: in the shape of the whole model, and no {smaller} than it; fedfibos-channels and the "
            "other methods of slices give a small network (docs/explanation/devices.md)",
        )
    if source.fleet:
        own = None if client is None else source.capacities.get(client)
        _check_fleet(capacity, source.fleet, client, own)


def exported(source: Exportable, capacity: float, out: Path, batch_size: int | None) -> Exported:
    """Write the submodel of a capacity.

    Raises:
        ValueError: Submodels are personal.
    """
    module, submodel, about = _prepared(source, capacity, None)
    gives = source.model.task.gives
    return export_submodel(module, submodel, source.examples, out, about, batch_size=batch_size, output=gives)


def _prepared(source: Exportable, capacity: float, client: int | None) -> tuple[nn.Module, Submodel, dict[str, str]]:
    """The submodel of a capacity (of a client, where submodels are personal) as a module, and what it is of."""
    at, method = source.at, source.method
    if client is not None and source.num_clients is not None and not 0 <= client < source.num_clients:
        raise ValueError(f"--client must be from 0 to {source.num_clients - 1}, got {client}")
    if client is None and method.personal:
        raise ValueError(f"submodels of {source.about['method']} with these settings are personal: pass --client N")
    if client is not None and method.personal and at.state.rows.clients() and client not in at.state.rows.clients():
        warn(f"client {client} has not taken part yet: its submodel is that of the first scores")
    bounds: dict[str, Any] = {"budget": source.budget, "limits": source.limits(capacity)}
    chosen = Client(client or 0, capacity, at.round, source.seed, source.local, **bounds)
    submodel = method.extract(source.model, at.state, at.served, chosen)
    module = submodel_module(source.model, at.served, submodel, source.calibration)
    whose = {} if client is None else {"client": client}
    about = describe(submodel, **source.about, capacity=capacity, round=at.round, **whose)
    return module, submodel, about


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _check_fleet(capacity: float, fleet: Collection[float], client: int | None, own: float | None) -> None:
    """Warn of a capacity that no client has, or that the chosen one has not (``own``; None: not known)."""
    if capacity not in fleet:
        there = ", ".join(f"{known:g}" for known in sorted(set(fleet), reverse=True))
        warn(f"no client on record has capacity {capacity:g}: there are {there}")
    elif own is not None and own != capacity:
        warn(f"client {client} has capacity {own:g}, the file is of {capacity:g}")


def _inputs(data: Dataset) -> dict[str, str]:
    """What a caller must do to pixels before the model sees them."""
    if not isinstance(data, ImageData):
        return {}
    mean, std = (", ".join(f"{value:g}" for value in values) for values in (data.mean, data.std))
    return {"inputs": f"(pixels / {data.white:g} - mean) / std, channels first; mean = [{mean}], std = [{std}]"}


def _some(data: Dataset) -> Inputs:
    return data.batch(torch.arange(min(EXAMPLES, len(data))))


def _load(app: Path) -> ModuleType:
    """The app's file as a module, like Flower imports it."""
    spec = importlib.util.spec_from_file_location(app.stem, app) if app.is_file() else None
    if spec is None or spec.loader is None:
        raise ValueError(f"--app must be the Python file of a Flower app, got {app}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[app.stem] = module  # dataclasses look their module up
    loader = spec.loader
    _call(app, lambda: loader.exec_module(module))
    if not hasattr(module, "task"):
        raise ValueError(f"{app} must have a function task(config), as fedfibos flower new writes it; it has none")
    return module


def _call(app: Path, work: Callable[[], Any]) -> Any:
    """Run code of the app; what goes wrong in it is one line."""
    try:
        return work()
    except Exception as error:
        raise ValueError(f"{app} fails with {type(error).__name__}: {error}") from error


def _settings(run: Path) -> dict[str, Any]:
    """What a run directory says of itself."""
    path = run / CONFIG
    if not path.is_file():
        raise no_run(run)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not valid TOML: {first_line(error)}") from error
