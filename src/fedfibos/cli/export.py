"""``fedfibos export``: the submodel of a device class, from a run directory of the simulator or of a Flower app."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from rich.filesize import decimal

from fedfibos.data.images import ImageData
from fedfibos.export import describe, export_submodel, submodel_module
from fedfibos.inputs import Inputs
from fedfibos.method import Method
from fedfibos.model import Model, keeps_statistics
from fedfibos.runs.record import CONFIG, RunDirectory
from fedfibos.runs.reopen import reopen
from fedfibos.simulation.checkpoint import Checkpoint, CheckpointStore
from fedfibos.submodel import check_capacity
from fedfibos.types import Client, Dataset

EXAMPLES = 64


def export_run(
    run: Path,
    capacity: float,
    client: int | None,
    out: Path,
    batch_size: int | None,
    data_dir: Path | None,
    console: Console,
) -> None:
    """Export the submodel of a capacity (and a client, where submodels are personal) at a run's last checkpoint."""
    check_capacity(capacity)
    if "model" not in _settings(run):
        raise ValueError(f"{run} is the run directory of a Flower app: pass --app, the app's file")
    opened = reopen(run, data_dir=data_dir, warn=_warn)
    world, experiment = opened.world, opened.experiment
    if client is not None and not 0 <= client < len(world.population):
        raise ValueError(f"--client must be from 0 to {len(world.population) - 1}, got {client}")
    calibration = None
    if keeps_statistics(world.model.module):
        calibration = world.population.calibration(experiment.evaluation.recalibration_samples)
    chosen = Client(client or 0, capacity, opened.checkpoint.round, experiment.seed, experiment.local)
    about = {"method": experiment.method.name, "model": experiment.model.name, **_inputs(world.split.test)}
    about["classes"] = json.dumps(world.split.classes, ensure_ascii=False)
    examples = _some(world.split.test)
    _export(
        world.model,
        world.method,
        opened.checkpoint,
        chosen,
        client,
        out,
        batch_size,
        examples,
        calibration,
        about,
        console,
    )
    own = None
    if client is not None and experiment.federation.assignment == "fixed":  # one redrawn each round is nobody's own
        own = experiment.capacities().of([client], 0)[0]
    _check_fleet(capacity, experiment.federation.capacities, client, own)


def export_app(
    run: Path, app: Path, capacity: float, client: int | None, out: Path, batch_size: int | None, console: Console
) -> None:
    """The same from the server's run directory of a Flower app, whose file has the model (``fedfibos flower new``).

    Outputs are compared on the app's test examples, or on its example batch where it has none. Statistics of batch
    normalisation are recomputed on what its function ``calibration`` gives, as the server app is given it.
    """
    check_capacity(capacity)
    settings = _settings(run)
    if "model" in settings:
        raise ValueError(f"{run} is a run directory of the simulator: leave out --app")
    sys.path.insert(0, str(app.parent))  # for what the app imports, now or when it is called
    try:
        _export_app(run, app, settings, capacity, client, out, batch_size, console)
    finally:
        sys.path.remove(str(app.parent))


def _export_app(
    run: Path,
    app: Path,
    settings: dict[str, Any],
    capacity: float,
    client: int | None,
    out: Path,
    batch_size: int | None,
    console: Console,
) -> None:
    fleet = _load(app)
    config = {"seed": settings["seed"], **settings.get("app", {})}
    for section in ("method", "local", "federation"):
        config |= {f"{section}.{key}": value for key, value in settings[section].items()}
    task = _call(app, lambda: fleet.task(config))
    if task.federation.scores == "client":
        raise ValueError("the scores of this run are with its clients: the server cannot say what a client holds")
    checkpoint = CheckpointStore(run).load_latest(task.model.layout, _warn)
    if checkpoint is None:
        raise ValueError(f"{run} has no checkpoint")
    examples = _some(_call(app, lambda: fleet.test(config))) if hasattr(fleet, "test") else task.model.example
    if examples is None:
        raise ValueError(f"{app} must have test examples or an example batch to compare outputs on, got neither")
    calibration = _call(app, lambda: fleet.calibration(config)) if hasattr(fleet, "calibration") else None
    if calibration is None and keeps_statistics(task.model.module):
        raise ValueError(f"{app} must have calibration(config), as its model has batch normalisation; it has none")
    chosen = Client(client or 0, capacity, checkpoint.round, task.seed, task.local)
    about = {"method": settings["method"]["name"], "model": type(task.model.module).__name__}
    _export(task.model, task.method, checkpoint, chosen, client, out, batch_size, examples, calibration, about, console)
    noted: dict[str, float] = {}
    for record in RunDirectory(run).rounds():
        noted |= record.get("capacities", {})  # older records have none
    if noted:
        _check_fleet(capacity, noted.values(), client, noted.get(str(client)))


def _export(
    model: Model,
    method: Method,
    at: Checkpoint,
    chosen: Client,
    client: int | None,
    out: Path,
    batch_size: int | None,
    examples: Inputs,
    calibration: Dataset | None,
    about: dict[str, Any],
    console: Console,
) -> None:
    if client is None and method.personal:
        raise ValueError(f"submodels of {about['method']} with these settings are personal: pass --client N")
    if client is not None and method.personal and at.state.rows.clients() and client not in at.state.rows.clients():
        _warn(f"client {client} has not taken part yet: its submodel is that of the first scores")
    submodel = method.extract(model, at.state, at.params, chosen)
    module = submodel_module(model, at.params, submodel, calibration)
    whose = {} if client is None else {"client": client}
    written_about = describe(submodel, **about, capacity=chosen.capacity, round=at.round, **whose)
    done = export_submodel(module, submodel, examples, out, written_about, batch_size=batch_size)
    size = model.layout.size
    console.print(
        f"{done.path}: {done.parameters:,} of {size:,} parameters held, {done.stored:,} stored, {decimal(done.bytes)}; "
        f"read back with {done.read_with}, outputs agree to {done.difference:.1g}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _check_fleet(capacity: float, fleet: Collection[float], client: int | None, own: float | None) -> None:
    """Warn of a capacity that no client has, or that the chosen one has not (``own``; None: not known)."""
    if capacity not in fleet:
        there = ", ".join(f"{known:g}" for known in sorted(set(fleet), reverse=True))
        _warn(f"no client of this fleet has capacity {capacity:g}: there are {there}")
    elif own is not None and own != capacity:
        _warn(f"client {client} has capacity {own:g}, the file is of {capacity:g}")


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
        raise ValueError(f"{run} is no run directory: it has no {CONFIG}")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)
