"""What the files of a record must hold for everything that reads them; they may hold more."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter
from typing_extensions import TypedDict

Number = float | None
Count = Annotated[int, Field(ge=0)]
Value = TypeVar("Value")


def _with_mean(table: dict[str, Any]) -> dict[str, Any]:
    if "mean" not in table:
        raise ValueError("it must have a mean")
    return table


class Traffic(TypedDict):
    """Bytes each way."""

    down: Count
    up: Count


class Global(TypedDict, Generic[Value]):
    """On the whole test set: the full model, and the submodels of each capacity."""

    full: Value
    submodels: Annotated[dict[str, Value], AfterValidator(_with_mean)]


class Local(TypedDict, Generic[Value]):
    """On the clients' own test examples, or on some in their own class proportions."""

    mean: Value
    by_capacity: dict[str, Value]


class LocalBoth(Local[Value]):
    """The same, and of predictions adjusted to these proportions."""

    adjusted: NotRequired[Local[Value]]


class Curve(TypedDict):
    """An accuracy over a run's evaluations."""

    last: Number
    last20: Number
    best: Number


class Described(TypedDict):
    """A metric: which way is better, and whether it is a share in [0, 1]."""

    better: Literal["higher", "lower"]
    share: bool


Metrics = Annotated[dict[str, Described], Field(min_length=1)]
"""Of an evaluation, the first one first; records without are older than other tasks than classification."""

# "global" is no name of a class's attribute.
Measured = TypedDict(
    "Measured", {"global": Global[Number], "local": LocalBoth[Number], "metrics": NotRequired[Metrics]}
)
"""An evaluation of a simulation or a fleet."""


class Spread(TypedDict):
    """What an evaluation in a simulation has besides."""

    jaccard: dict[str, Number]
    kept_shares: dict[str, Any]
    cv_f: Number
    cv_magnitude: Number


class Line(TypedDict):
    """One round of ``rounds.jsonl``, of a simulation or a fleet."""

    round: Count
    loss: NotRequired[float]
    skipped_round: NotRequired[str]
    rejected: dict[str, str]
    bytes: Traffic
    seconds: float
    participants: NotRequired[list[int]]
    silent: NotRequired[list[int]]
    epsilon: NotRequired[float]
    dropped: NotRequired[dict[str, str]]
    late: NotRequired[dict[str, str]]
    measured: NotRequired[dict[str, dict[str, Any]]]
    capacities: NotRequired[dict[str, float]]
    evaluation: NotRequired[Measured]


class Final(TypedDict):
    """``final.json`` of a simulation; of its first metric see :mod:`fedfibos.runs.final`."""

    method: str
    seed: int
    rounds: NotRequired[Count]
    params_sha256: str
    metrics: NotRequired[Metrics]
    bytes: Traffic
    seconds: float
    rejected: Count
    silent: NotRequired[Count]
    epsilon: NotRequired[float]
    delta: NotRequired[float]
    devices: NotRequired[dict[str, dict[str, Any]]]
    skipped_rounds: NotRequired[list[int]]


class FleetFinal(TypedDict):
    """``final.json`` of a fleet; accuracies only where the server has a test set."""

    rounds: Count
    params_sha256: str
    metrics: NotRequired[Metrics]
    bytes: NotRequired[Traffic]
    seconds: NotRequired[float]
    rejected: NotRequired[Count]
    epsilon: NotRequired[float]
    delta: NotRequired[float]


class Made(TypedDict):
    """Where a run was made, or gone on with."""

    cpu: str
    cores: int
    device: str
    torch: str
    numpy: NotRequired[str]
    commit: NotRequired[str | None]
    own: NotRequired[dict[str, str]]
    dealt_sha256: NotRequired[str]
    devices_sha256: NotRequired[str]
    initial_sha256: NotRequired[str]


class Environment(Made):
    """``environment.json``."""

    resumed: NotRequired[list[Made]]


class Adjusted(TypedDict):
    """The local accuracies of an evaluation made later; adjusted ones only of classes."""

    adjusted: NotRequired[Local[Number]]


class Later(TypedDict):
    """``evaluation.json``: a checkpoint measured anew."""

    round: Count
    local: Adjusted


class Dealt(TypedDict):
    """``partition.json``: examples of each class of each client."""

    classes: list[str]
    counts: Annotated[list[list[Count]], Field(min_length=1)]


DEALT_SHAPE = TypeAdapter(Dealt)
ENVIRONMENT_SHAPE = TypeAdapter(Environment)
FINAL_SHAPE = TypeAdapter(Final)
FLEET_FINAL_SHAPE = TypeAdapter(FleetFinal)
LATER_SHAPE = TypeAdapter(Later)
LINE_SHAPE = TypeAdapter(Line)
SPREAD_SHAPE = TypeAdapter(Spread)
