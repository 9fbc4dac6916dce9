"""One experiment: every setting of a run, validated, and the TOML file it is written in."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w
from pydantic.dataclasses import dataclass

from fedfibos.common.validation import ExperimentError, checked, listed
from fedfibos.config.capacities import Capacities
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.devices import device_tables
from fedfibos.config.federation import Federation
from fedfibos.config.keys import check_keys
from fedfibos.config.layers import Layer, as_layers, merge, read_layers, source_of, toml_in
from fedfibos.config.limits import CONFIG, Seed
from fedfibos.config.sections import ABSENT, SECTIONS, Checkpoints, Data, Evaluation, Run
from fedfibos.config.task import TaskChoice
from fedfibos.method import Method
from fedfibos.methods import METHODS
from fedfibos.models import MODELS
from fedfibos.privacy.settings import Privacy
from fedfibos.server.settings import Server
from fedfibos.training import LocalTraining


@dataclass(frozen=True, config=CONFIG)
class Experiment:
    """Every setting of a run.

    Attributes:
        model: The model.
        federation: Clients, rounds, capacities.
        method: The method and its hyperparameters.
        seed: Root of all random streams.
        data: The data set and its partition.
        task: What the model is trained for.
        local: How clients train.
        server: How uploads are merged, and the server's optimiser.
        evaluation: When and how accuracy is measured.
        run: How it is carried out.
        checkpoint: Which checkpoints are kept.
        privacy: Differential privacy of clients; None: none.
    """

    model: ModelChoice
    federation: Federation
    method: MethodChoice
    seed: Seed = 0
    data: Data = Data()
    task: TaskChoice = TaskChoice()
    local: LocalTraining = LocalTraining()
    server: Server = Server()
    evaluation: Evaluation = Evaluation()
    run: Run = Run()
    checkpoint: Checkpoints = Checkpoints()
    privacy: Privacy | None = None

    def build_method(self) -> Method:
        """The method with this experiment's hyperparameters."""
        return self.method.build()

    def capacities(self) -> Capacities:
        """The capacity of every client in every round; not of devices, whose capacities are the method's."""
        federation = self.federation
        fleet = (federation.capacities, federation.clients, federation.assignment)
        return Capacities(*fleet, self.seed, federation.assigned)


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
    layers = layers_of(path)
    if path.is_dir():
        _check_simulated(layers[-1], path)
    return _layered([*layers, *as_layers(overrides)], own_code=not path.is_dir() or bool(overrides))


def layers_of(path: Path) -> list[Layer]:
    """The layers of an experiment file, or of a run directory's ``config.toml``: its bases first.

    Raises:
        ExperimentError: As of :func:`load_experiment`.
    """
    return read_layers(_file(path))


def recorded_experiment(content: bytes, path: Path) -> Experiment:
    """The experiment of a record; the user's own model, data and method are taken as it names them.

    Args:
        content: Of its ``config.toml``.
        path: Where that is, for messages.

    Raises:
        ExperimentError: As of :func:`load_experiment`.
    """
    layer = Layer(str(path), toml_in(content, str(path)))
    _check_simulated(layer, path.parent)
    return _layered([layer], own_code=False)


def _check_simulated(layer: Layer, run: Path) -> None:
    if "model" not in layer.values:
        raise ExperimentError(
            f"{run} is the run directory of a Flower app, wanted one of the simulator (fedfibos export --app reads it)"
        )


def _layered(layers: Sequence[Layer], own_code: bool) -> Experiment:
    values: dict[str, Any] = {}
    for layer in layers:
        try:
            values = merge(values, layer.values)
            check_keys(layer.values, values)
        except ValueError as error:
            raise ExperimentError(f"{layer.source}: {error}") from None
    return _build(values, layers, own_code)


def _file(path: Path) -> Path:
    """The experiment file that a path names: itself, or that of a run directory."""
    with suppress(OSError, ValueError):  # what is wrong with the name is said where the file is read
        return path / "config.toml" if (path / "config.toml").exists() else path
    return path


def to_toml(experiment: Experiment) -> str:
    """The experiment as a file with every setting written out; loading it gives the same experiment."""
    values = dataclasses.asdict(experiment)
    federation = values["federation"]
    federation["capacities"] = {str(c): s for c, s in experiment.federation.capacities.items()}
    federation["devices"] = device_tables(experiment.federation.devices)
    del federation["capacities" if experiment.federation.devices else "devices"]  # one replaces the other
    if not values["data"]["options"]:  # as most data sets have none
        del values["data"]["options"]
    for section in ("method", "task"):
        values[section] |= values[section].pop("settings")
    if experiment.task == TaskChoice():  # as most experiments have it, and all older records
        del values["task"]
    sections = {name: values[name] for name in SECTIONS if name in values}
    return tomli_w.dumps(_without_none({"seed": experiment.seed, **sections}))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null: what is not set is not written."""
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def _build(values: Mapping[str, Any], layers: Sequence[Layer], own_code: bool) -> Experiment:
    """Validate section by section; an error names the layer that wrote the value.

    ``own_code``: whether the user's own model, data and method are looked up; what a record says of them is taken as
    it is.
    """
    built: dict[str, Any] = {}
    try:
        built["seed"] = checked(Seed, values.get("seed", 0), "seed")
        for section, cls in SECTIONS.items():
            if section in ABSENT and section not in values:
                continue
            given = dict(values.get(section, {}))
            if section in NAMED and "name" not in given:
                wanted = f"{listed(NAMED[section])}, or your own as module:name"
                raise ExperimentError(f"{section}.name is missing: it must be {wanted}", f"{section}.name")
            if section in ("method", "task"):
                settings = {key: given.pop(key) for key in list(given) if key not in ("name", "preset")}
                given["settings"] = settings
            built[section] = checked(cls, given, section)
            if own_code and section in ("data", "task", "model", "method"):
                built[section] = _resolved(built[section], section)
    except ExperimentError as error:
        raise ExperimentError(f"{source_of(layers, error.key)}: {error}") from None
    return Experiment(**built)


NAMED: Mapping[str, Collection[str]] = {"model": MODELS, "method": METHODS}
"""Sections that need a name -> the names of what is built in."""


def _resolved(choice: Data | TaskChoice | ModelChoice | MethodChoice, section: str) -> Any:
    try:
        return choice.resolved()
    except ExperimentError:
        raise
    except ValueError as error:
        raise ExperimentError(str(error), f"{section}.name") from error
