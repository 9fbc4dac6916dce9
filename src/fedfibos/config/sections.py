"""The sections of an experiment: what each setting means and which values it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast, get_args

import tomli_w
from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedfibos.channels.costs import Bounded
from fedfibos.common.user_code import describe_error, find, is_own, unguarded
from fedfibos.common.validation import ExperimentError, check_name, checked, did_you_mean, listed, shown
from fedfibos.config.capacities import TABLES, check_table
from fedfibos.data import DATA_SETS
from fedfibos.data import check_options as check_data_options
from fedfibos.data.forms.form import form_of
from fedfibos.data.partition import Partition
from fedfibos.method import OPTIONAL, Method
from fedfibos.methods import METHODS, PRESETS
from fedfibos.models import check_options, options_of, parameters_of
from fedfibos.scores.files import Bytes, Home
from fedfibos.training import LocalTraining

Seed = Annotated[int, Field(ge=0, lt=2**63)]
LARGEST = 10**9
"""Of counts: beyond it nothing here can be meant, and tables of that many entries do not fit a memory."""

Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Norm = Literal["group", "batch", "none"]
VERBS = ("personal", "init", "extract", "train", "update", "aggregate")
"""What a method must have: the members of :class:`fedfibos.method.Method`."""

WEIGHTINGS = ("uniform", "samples")
"""Words that say how uploads are weighted; a list of numbers does too."""

CONFIG = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=CONFIG)
class Data:
    """What the clients hold.

    Attributes:
        name: A key of :data:`fedfibos.data.DATA_SETS`; ``form:PATH`` for data as they lie, with one of the forms
            ``folder``, ``csv``, ``parquet``, ``npz``, ``leaf``, ``hf``; or your own: ``module:function``, which is
            called with the data folder (or None) and gives a :class:`fedfibos.data.Split`.
        partition: How the examples are dealt to the clients.
        options: Of the form, all of them after construction; or what your own function is called with, by name.
    """

    name: str = "digits"
    partition: Partition = Partition()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_own(self.name):
            check_name("data.name", self.name, DATA_SETS)
        object.__setattr__(self, "options", check_data_options(self.name, self.options))

    def resolved(self) -> Data:
        """The same, once a user's own function is seen to be there.

        Raises:
            ValueError: It is not.
        """
        if form_of(self.name) is None:
            find("data.name", self.name, DATA_SETS)
        return self


@dataclass(frozen=True, config=CONFIG)
class ModelChoice:
    """The model that is trained.

    Attributes:
        name: A key of :data:`fedfibos.models.MODELS`, or your own: ``module:function``, which is called with
            ``num_classes``, ``input_shape`` and its options and gives an ``nn.Module``.
        norm: Normalisation layer; the model's own default where not given.
        options: The model's other options (``hidden`` of the MLP, ``channels`` of the others), all of them
            after construction.
        channels_last: Compute on images laid out channels last; see :func:`fedfibos.model.model_of`.
        held: Modules or parameters that every client holds whole, as normalisation layers are (a new head, say): they
            are not ranked and not counted against the budget; slices cut them with their channels all the same.
        whole: Modules or parameters whose channels slices never cut; they count against the budget.
    """

    name: str
    norm: Norm | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    channels_last: bool = False
    held: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if is_own(self.name):  # see ``resolved``: a record is read without its user's code
            return
        check_options(self.name, self.options)
        known = options_of(self.name)
        resolved = {name: self.options.get(name, parameter.default) for name, parameter in known.items()}
        for name, value in resolved.items():
            resolved[name] = checked(known[name].annotation, value, f"model.options.{name}")
        object.__setattr__(self, "options", resolved)
        if self.norm is None:
            object.__setattr__(self, "norm", parameters_of(self.name)["norm"].default)

    def resolved(self) -> ModelChoice:
        """The same; a user's own model with its defaults written out, where TOML has them.

        Raises:
            ExperimentError: It is not there, or not to be called with these options.
        """
        if not is_own(self.name):
            return self
        parameters = parameters_of(self.name)
        needed = {"num_classes": "name", "input_shape": "name", **({"norm": "norm"} if self.norm is not None else {})}
        needed |= {option: f"options.{option}" for option in self.options}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            for name, key in needed.items():
                if name not in parameters:
                    near = did_you_mean(name, options_of(self.name))
                    raise ExperimentError(
                        f"{self.name} must take {name}, it has no such parameter{near}", f"model.{key}"
                    )
        options = dict(self.options)
        for name, parameter in options_of(self.name).items():
            if name not in options and parameter.default is parameter.empty:
                raise ExperimentError(f"model.options.{name} is missing: {self.name} has no default for it", "model")
            if isinstance(parameter.default, bool | int | float | str | list | tuple):
                options.setdefault(name, parameter.default)
        return dataclasses.replace(self, options=options)


@dataclass(frozen=True, config=CONFIG)
class MethodChoice:
    """The method and its hyperparameters.

    Attributes:
        name: A key of :data:`fedfibos.methods.METHODS`, or your own: ``module:Class``, a frozen dataclass with
            the verbs of :class:`fedfibos.method.Method`, whose fields are its settings.
        preset: A key of :data:`fedfibos.methods.PRESETS` of that method, or None for its defaults.
        settings: Fields that differ from the preset; all fields of the method after construction.
    """

    name: str
    preset: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if is_own(self.name):  # see ``resolved``: a record is read without its user's code
            if self.preset is not None:
                raise ExperimentError(f"a method of your own has no presets, got {self.preset!r}", "method.preset")
            return
        check_name("method.name", self.name, METHODS)
        preset: Mapping[str, Any] = {}
        if self.preset is not None:
            check_name(f"method.preset of {self.name}", self.preset, PRESETS.get(self.name, {}))
            preset = PRESETS.get(self.name, {})[self.preset]
        method = METHODS[self.name]
        for key in self.settings:
            check_name(f"a setting of {self.name}", key, field_names(method))
        built = checked(method, {**preset, **self.settings}, "method")
        object.__setattr__(self, "settings", dataclasses.asdict(built))

    def resolved(self) -> MethodChoice:
        """The same; a user's own method with its defaults written out.

        Raises:
            ExperimentError: It is not there, is no method, or does not take these settings.
        """
        if not is_own(self.name):
            return self
        cls: Any = unguarded(find("method.name", self.name, METHODS))
        lacks = [verb for verb in VERBS if not hasattr(cls, verb)]
        if not isinstance(cls, type) or not dataclasses.is_dataclass(cls) or lacks:
            lack = f"it lacks {', '.join(lacks)}" if lacks else "it is none"
            raise ExperimentError(f"{self.name} must be a dataclass with the verbs of a method, {lack}", "method.name")
        if asked := [key for key in field_names(cls) if key in OPTIONAL]:
            raise ExperimentError(
                f"{self.name} has a setting {asked[0]!r}, which methods are asked for as a verb: give it another name",
                f"method.{asked[0]}",
            )
        for key in self.settings:
            check_name(f"a setting of {self.name}", key, field_names(cls))
        try:
            settings = dataclasses.asdict(checked(cls, dict(self.settings), "method"))
            tomli_w.dumps({key: value for key, value in settings.items() if value is not None})
        except ExperimentError:
            raise
        except Exception as error:  # field types that no file can hold
            raise ExperimentError(
                f"{self.name} has settings that no file can hold: {describe_error(error)}", "method"
            ) from error
        return dataclasses.replace(self, settings=settings)

    def build(self) -> Method:
        """The method with these settings."""
        return cast(Method, find("method.name", self.name, METHODS)(**self.settings))

    def left_out(self) -> dict[str, Any]:
        """What every setting would be if it alone were left out: a method may choose one by the others.

        Of a user's own method the settings as they are, as its record may be read without its code.
        """
        if is_own(self.name):
            return dict(self.settings)
        return {key: self._without(key).settings[key] for key in self.settings}

    def _without(self, key: str) -> MethodChoice:
        return MethodChoice(self.name, self.preset, {k: v for k, v in self.settings.items() if k != key})


def _capacity_table(value: object) -> object:
    """A capacity table from what TOML gives: the paper's name of one, or a table with text keys.

    ``{1.0 = 0.2}`` is a dotted key in TOML, a table in a table; the pieces are put together again.
    """
    if isinstance(value, str):
        check_name("capacities", value, TABLES)
        return dict(TABLES[value])
    if not isinstance(value, Mapping):
        raise ValueError(f"capacities must be a table of capacity = share, or {listed(TABLES)}, got {value!r}")
    table: dict[float, Any] = {}
    for key, share in value.items():
        pieces = share if isinstance(share, Mapping) else {"": share}
        for decimals, piece in pieces.items():
            text = f"{key}.{decimals}" if decimals else str(key)
            capacity = _number(text)
            if capacity in table:
                raise ValueError(f"capacities must differ, got {capacity:g} twice")
            table[capacity] = piece
    return dict(sorted(table.items(), reverse=True))


def _one_or_several(value: object) -> object:
    """Different words, one at least, from one word or several."""
    words = tuple(value) if isinstance(value, list | tuple) else (value,)
    for word in words:
        check_name("budget", word, get_args(Bounded))
    if not words or len(set(words)) < len(words):
        raise ValueError(f"budget must be one word, or several different ones, got {list(words)}")
    return words


Budget = Annotated[tuple[Bounded, ...], BeforeValidator(_one_or_several)]


def _weights(value: object) -> object:
    """A word, or a number above 0 for every client."""
    if not isinstance(value, list | tuple):
        check_name("weighting", value, WEIGHTINGS)
        return value
    for client, weight in enumerate(value):
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= LARGEST:
            raise ValueError(
                f"weighting must be numbers above 0, at most {LARGEST:,}, got {shown(weight)} for client {client}"
            )
    return tuple(map(float, value))


Weighting = Annotated[Literal["uniform", "samples"] | tuple[float, ...], BeforeValidator(_weights)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a capacity must be a number in (0, 1], got {text!r}") from None


@dataclass(frozen=True, config=CONFIG)
class Federation:
    """Clients, rounds and capacities.

    Attributes:
        clients: N, clients in all.
        cohort: A, participants of a round.
        rounds: T.
        capacities: Capacity -> share of the clients; or ``uniform`` or ``non-uniform``, the paper's tables.
        budget: What a capacity is a share of, for methods that cut channels; of several each is bounded: ``parameters``
            (the maskable ones), ``macs`` (of an example's forward pass), ``memory`` (of a training step at its peak),
            ``bytes`` (of a round, both ways). Masks are shares of the parameters in any case, and take the memory and
            the operations of the whole model.
        assigned: The capacity of every client, by id, for fleets whose devices are known (``natural`` partitions); it
            replaces ``capacities``.
        assignment: ``fixed``, or ``dynamic``: every client's capacity is redrawn each round.
        weighting: Weight of an upload in the averages: ``uniform``, the client's number of ``samples``, or a list: a
            number above 0 for every client, by id.
        dropout: Probability that a participant is handed its submodel and never answers, drawn for every client and
            round; of a cohort at least one answers.
    """

    clients: Positive
    cohort: Positive
    rounds: Positive
    capacities: Annotated[dict[float, float], BeforeValidator(_capacity_table)] = dataclasses.field(
        default_factory=lambda: dict(TABLES["uniform"])
    )
    budget: Budget = ("parameters",)
    assigned: tuple[float, ...] | None = None
    assignment: Literal["fixed", "dynamic"] = "fixed"
    weighting: Weighting = "uniform"
    dropout: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.0

    def __post_init__(self) -> None:
        if self.cohort > self.clients:
            raise ValueError(f"cohort must be at most clients, {self.clients}, got {self.cohort}")
        if isinstance(self.weighting, tuple) and len(self.weighting) != self.clients:
            raise ValueError(
                f"weighting must be {self.clients} numbers, one a client, got {len(self.weighting)} of them"
            )
        if self.assigned is None:
            check_table(self.capacities, self.clients)
            return
        for client, capacity in enumerate(self.assigned):
            if not 0.0 < capacity <= 1.0:
                raise ValueError(f"assigned must be capacities in (0, 1], got {capacity:g} for client {client}")
        if len(self.assigned) != self.clients or self.assignment != "fixed":
            raise ValueError(
                f"assigned must be {self.clients} capacities, one a client, with assignment = 'fixed', got "
                f"{len(self.assigned)} with {self.assignment!r}"
            )
        shares = {c: self.assigned.count(c) / self.clients for c in sorted(set(self.assigned), reverse=True)}
        object.__setattr__(self, "capacities", shares)


@dataclass(frozen=True, config=CONFIG)
class Evaluation:
    """When and how accuracy is measured.

    Attributes:
        every: Rounds between evaluations; the last round is always evaluated.
        batch_size: Test examples at a time.
        submodel_clients: For methods whose submodels differ between clients of equal capacity: at most so many
            clients of each capacity are averaged for the global accuracy of submodels; None: all.
        recalibration_samples: Training examples that batch normalisation is recalibrated on.
        validation: Share of the training examples that no client gets and that accuracies are measured on, in place
            of the test set: for choosing hyperparameters. 0: the test set, for reporting.
    """

    every: Positive = 10
    batch_size: Positive = 500
    submodel_clients: Positive | None = None
    recalibration_samples: Annotated[int, Field(ge=2, le=LARGEST)] = 5000
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0


@dataclass(frozen=True, config=CONFIG)
class Run:
    """How the run is carried out; nothing here but ``score_bytes`` changes its result.

    Attributes:
        checkpoint_every: Rounds between checkpoints; the last round always leaves one.
        score_home: Where per-client scores live: ``memory``; ``disk``, a file a client in the server's checkpoint
            folder; ``client``, a file a client in a folder of the clients' own (a simulation plays both sides).
        score_bytes: Of a score in a file: 4 is exact; 2 halves the files and changes, on average, less than a
            thousandth of a selection (docs/explanation/performance.md).
        cuda_graphs: With ``--device cuda``: clients train side by side, each on a stream of its own, and their steps
            are recorded as CUDA graphs. Experimental. Without it they train one after another, kernel by kernel.
    """

    checkpoint_every: Positive = 10
    score_home: Home = "memory"
    score_bytes: Bytes = 4
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        if self.score_bytes == 2 and self.score_home == "memory":
            raise ValueError("score_bytes = 2 is for files, score_home = 'disk' or 'client', got 'memory'")


def field_names(cls: type[Any]) -> list[str]:
    """Names of a dataclass's fields."""
    return [field.name for field in dataclasses.fields(cls)]


SECTIONS: Mapping[str, type[Any]] = {
    "data": Data,
    "model": ModelChoice,
    "federation": Federation,
    "method": MethodChoice,
    "local": LocalTraining,
    "evaluation": Evaluation,
    "run": Run,
}
"""The sections of an experiment file, in the order in which they are written."""
