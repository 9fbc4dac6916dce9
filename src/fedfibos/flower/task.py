"""What server and clients agree on before the first round, from Flower's run configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, Literal

import tomli_w
import torch
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from fedfibos.common.inputs import Inputs
from fedfibos.common.validation import FieldError, check_name, checked
from fedfibos.config.choices import MethodChoice, field_names
from fedfibos.config.federation import Budget, Weighting
from fedfibos.config.growth import check_growth, cohort_in
from fedfibos.config.limits import CONFIG, Count, Positive, Seed
from fedfibos.config.watched import Trackers, checked_metric
from fedfibos.method import ClientScored, Method
from fedfibos.model import Model, model_of
from fedfibos.privacy.settings import Privacy
from fedfibos.server.settings import PLAIN, Server
from fedfibos.steps.loss import check_local
from fedfibos.tasks.classification import CLASSIFICATION
from fedfibos.tasks.task import Task
from fedfibos.training import LocalTraining
from fedfibos.wire.model_outline import Outline
from fedfibos.wire.precision import Precision

Settings = Mapping[str, bool | int | float | str]
"""Flower's run configuration: dotted keys."""


class OutlinedSettings(dict[str, bool | int | float | str]):
    """The run configuration with what the server says of the model: for :func:`task_of`, which then derives nothing.

    Attributes:
        outline: The model's.
    """

    def __init__(self, config: Settings, outline: Outline) -> None:
        super().__init__(config)
        self.outline = outline


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@validated(frozen=True, config=CONFIG)
class FleetSettings:
    """The ``federation`` keys of the run configuration.

    Attributes:
        rounds: T.
        cohort: A, participants of a round; with fewer clients connected, all of them.
        extra: How many clients more are asked: the first ``cohort`` usable uploads count, the others are dropped.
        grow_from: Participants of the first round, of a cohort that grows; None: ``cohort``.
        grow_over: Rounds until it is ``cohort``.
        weighting: Weight of an upload in the averages: ``uniform``, the client's number of ``samples``, or a list: a
            number above 0 for each client, in the order of their ids. Then no others take part.
        budget: What capacities are shares of, for methods that cut channels: ``parameters``, ``macs``, ``memory``,
            ``bytes``, or several.
        scores: Where per-client scores live: with the ``server``, or in a file of each ``client``.
        statistic: Precision in which a statistic travels.
        min_participants: Usable uploads without which a round does not count and is tried again.
        patience: Times in turn that a round may bring too few; then the run stops.
        deadline: Seconds that clients have for an answer.
        measure_every: Rounds after which devices measure anew what they can afford; None: only after a missed deadline,
            or another failure.
        wait: Seconds to wait for ``cohort`` clients before a round; then those that are there take part.
        bind_keys: Whether a client's number belongs, for as long as the run directory is there, to the key of the first
            node that declared it. For SuperNodes with keys; without one, a node has a new key after every start.
        evaluate_every: Rounds between evaluations on the server's test set.
        submodel_clients: Where submodels are personal: at most so many clients of each capacity are evaluated; None:
            all.
        device: Where the server evaluates: ``cpu``, or an accelerator that torch sees.
        checkpoint_every: Rounds between checkpoints.
        best: A number of a round, such as ``global_accuracy.full``: the checkpoint where it is best is kept too.
        log: Trackers: ``tensorboard``, ``wandb``, ``mlflow``, ``trackio``, or several.
        client_records: Whether clients say how long they trained and what they held, for each round's line and
            ``clients.parquet``.
        metrics_port: Port at which Prometheus reads the server's metrics; None: none.
        metrics_host: Address that it listens at; only this machine sees the default.
        log_format: How the server logs: as Flower does, or ``json``, an object a line.
    """

    rounds: Positive
    cohort: Positive
    extra: Count = 0
    grow_from: Positive | None = None
    grow_over: Positive | None = None
    weighting: Weighting = "uniform"
    budget: Budget = ("parameters",)
    scores: Literal["server", "client"] = "server"
    statistic: Precision = "float32"
    min_participants: Positive = 1
    patience: Positive = 10
    deadline: Seconds = 600.0
    measure_every: Positive | None = None
    wait: Seconds = 120.0
    bind_keys: bool = False
    evaluate_every: Positive = 10
    submodel_clients: Positive | None = None
    device: str = "cpu"
    checkpoint_every: Positive = 1
    best: Annotated[str, AfterValidator(checked_metric)] | None = None
    log: Trackers = ()
    client_records: bool = False
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    metrics_host: str = "127.0.0.1"
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        check_growth(self.cohort, self.grow_from, self.grow_over)
        name, least = ("cohort", self.cohort) if self.grow_from is None else ("grow_from", self.grow_from)
        if self.min_participants > least:
            raise ValueError(f"min_participants must be at most {name}, {least}, got {self.min_participants}")
        if self.extra and self.scores == "client":
            raise FieldError(
                "extra",
                "extra must be 0 with scores = 'client': every device is asked for its mask before it trains, got "
                f"{self.extra}",
            )

    def cohort_in(self, t: int) -> int:
        """Uploads that round t wants."""
        return cohort_in(t, self.cohort, self.grow_from, self.grow_over)


@dataclasses.dataclass(frozen=True)
class FleetTask:
    """What server and clients agree on.

    Attributes:
        method: The method.
        model: Architecture and layout; its values are the initial parameters, equal on all machines.
        local: How clients train (at round 0).
        federation: Rounds, cohort, deadlines.
        seed: Root of the run's random streams.
        settings: All of it, as the run directory keeps it: TOML. The app's own keys are in its table ``app``.
        server: How uploads are merged, and the server's optimiser.
        privacy: Differential privacy of clients; None: none.
    """

    method: Method
    model: Model
    local: LocalTraining
    federation: FleetSettings
    seed: int
    settings: str
    server: Server = PLAIN
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        if self.federation.scores == "client":
            if not isinstance(self.method, ClientScored):
                raise ValueError(
                    "scores = 'client' needs a method with scores of the clients' own, such as fedfibos with "
                    "sharing = 'client', got another"
                )
            self.method.check_client_scores()

    def on(self, device: torch.device) -> FleetTask:
        """The same where clients train on that device."""
        return dataclasses.replace(self, model=self.model.on(device))

    @property
    def shares_a_score(self) -> bool:
        """Whether clients blend a score of their own with one that the server holds."""
        return isinstance(self.method, ClientScored) and self.method.shares_a_score

    @cached_property
    def untrained_sha256(self) -> str:
        """Of what server and clients must have alike and never send: frozen parameters and buffers.

        Where clients hold their scores, these begin with the initial values: then of those too.
        """
        module = self.model.module
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        trained = frozenset() if self.federation.scores == "client" else frozenset(self.model.layout.names)
        digest = hashlib.sha256()
        for name in sorted(tensors.keys() - trained):
            digest.update(name.encode())
            digest.update(tensors[name].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def task_of(
    module: nn.Module,
    config: Settings,
    *,
    example: Inputs | None = None,
    held: Sequence[str] = (),
    task: Task = CLASSIFICATION,
) -> FleetTask:
    """A task from a model and Flower's run configuration.

    Args:
        module: The architecture. Build it from a fixed seed, so that its initial values are equal on all machines.
        config: ``context.run_config``: keys ``method.*``, ``local.*``, ``server.*``, ``privacy.*``,
            ``federation.*`` (:class:`FleetSettings`) and ``seed``; keys outside these sections are yours.
        example: One batch of inputs, for the methods that slice.
        held: Modules or parameters that every client holds whole; see :func:`fedfibos.params.maskable_names`.
        task: What the model is trained for and measured by, such as ``Regression().task(targets, ())`` of
            :data:`fedfibos.tasks.TASKS`.

    Raises:
        ValueError: The model has no such part, or the task no use for a setting.
        ExperimentError: An unknown key or a value that cannot be, in one line.
    """
    names = ("method", "local", "server", "federation", "privacy")
    sections: dict[str, dict[str, Any]] = {name: {} for name in names}
    own = {}
    for key, value in config.items():
        section, dot, name = key.partition(".")
        if dot and section in sections:
            sections[section][name] = _array(value)
        elif key not in ("seed", "run-dir", "resume"):
            own[key] = value
    seed = checked(Seed, config.get("seed", 0), "seed")
    values = sections["method"]
    head = {key: values.pop(key) for key in ("name", "preset") if key in values}
    choice = checked(MethodChoice, {**head, "settings": values}, "method").resolved()
    for section, cls in (("local", LocalTraining), ("server", Server), ("privacy", Privacy)):
        for name in sections[section]:
            check_name(f"a key of {section}", name, field_names(cls))
    local = checked(LocalTraining, sections["local"], "local")
    server = checked(Server, sections["server"], "server")
    federation = checked(FleetSettings, sections["federation"], "federation")
    privacy = checked(Privacy, sections["privacy"], "privacy") if sections["privacy"] else None
    resolved = {
        "seed": seed,
        "method": {"name": choice.name, **choice.settings},
        "local": _given(local),
        "federation": _given(federation),
        **({"server": dataclasses.asdict(server)} if server != PLAIN else {}),
        **({"privacy": _given(privacy)} if privacy is not None else {}),
        **({"held": list(held)} if held else {}),
        **({"task": task.name or "own"} if task is not CLASSIFICATION else {}),
        **({"app": own} if own else {}),
    }
    outline = config.outline if isinstance(config, OutlinedSettings) else None
    check_local(task, local)
    model = model_of(module, held=held, example=example) if outline is None else outline.model(module, example)
    made = choice.build(), model.doing(task), local, federation, seed, tomli_w.dumps(resolved), server
    return FleetTask(*made, privacy)


def _given(section: Any) -> dict[str, Any]:
    """The fields of a section that TOML can hold: it has no null."""
    return {key: value for key, value in dataclasses.asdict(section).items() if value is not None}


def _array(value: bool | int | float | str) -> Any:
    """The value; of a text that writes an array (Flower's configuration has none) the array."""
    if isinstance(value, str) and value.startswith("["):
        with suppress(json.JSONDecodeError):
            return json.loads(value)
    return value
