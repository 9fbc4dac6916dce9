"""The contract that a method satisfies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from fedfibos.aggregate import Sums
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Mask, Slice, Submodel
from fedfibos.types import Client, State, Upload

Idle = tuple[tuple[str, ...], str, tuple[str, ...]]
"""Settings, the one that decides whether they matter, and its values with which they do."""


def answer(verb: str, got: Any, *wanted: type[Any]) -> Any:
    """What a method's verb gave.

    Raises:
        ValueError: It is not what the verb must give.
    """
    if not isinstance(got, wanted):
        names = [kind.__name__ for kind in wanted]
        raise ValueError(f"a method's {verb} must return {' or '.join(names)}, got {type(got).__name__}")
    return got


@contextmanager
def pure(verb: str, *given: State | Params) -> Iterator[None]:
    """Run a verb of a method; what it is given must be as it was afterwards.

    Torch counts the changes of a tensor in place, so nothing is compared.

    Raises:
        ValueError: The verb changed a tensor of the parameters or of the state.
    """
    tensors: dict[str, Tensor] = {}
    for value in given:
        tensors |= (
            {f"the state's {name!r}": tensor for name, tensor in value.tensors.items()}
            if isinstance(value, State)
            else {"the parameters": value.flat}
        )
    before = {what: tensor._version for what, tensor in tensors.items() if not tensor.is_inference()}
    yield
    for what, version in before.items():
        if tensors[what]._version != version:
            raise ValueError(
                f"a method's {verb} must change none of its arguments, it changed {what} in place: return new tensors"
            )


def extract_submodel(method: Method, model: Model, state: State, params: Params, client: Client) -> Submodel:
    """The submodel that a method extracts for a client.

    Raises:
        ValueError: It is none, or a mask of another model; or the method changed the state or the parameters.
    """
    with pure("extract", state, params):
        submodel: Submodel = answer("extract", method.extract(model, state, params, client), Mask, Slice)
    held, size = submodel.held, params.layout.size
    if held is not None and held.shape != (size,):
        raise ValueError(
            f"a method's extract must hold or leave each of {size} parameters, a mask of shape ({size},), got one of "
            f"shape {tuple(held.shape)} for client {client.id}"
        )
    if isinstance(submodel, Mask) and held is not None and int(held.count_nonzero()) != submodel.num_held:
        raise ValueError(
            f"a mask's num_held must be the number of parameters that it holds, {int(held.count_nonzero())}, got "
            f"{submodel.num_held} for client {client.id}"
        )
    return submodel


class Method(Protocol):
    """A federated method: five verbs, the lines of the paper's Algorithm 1.

    A method is a frozen dataclass whose fields are its hyperparameters. It inherits nothing.
    The verbs are pure: they return new values and change none of their arguments.
    """

    @property
    def personal(self) -> bool:
        """True when two clients of equal capacity may hold different submodels in a round."""

    def init(self, params: Params) -> State:
        """The server starts (Algorithm 1, line 2)."""

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The submodel of this client this round (line 6)."""

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Local training (lines 10 to 18)."""

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """What the server keeps of one participant (lines 21 to 23)."""

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """The server step from the cohort's sums (line 20)."""


@runtime_checkable
class Cautious(Protocol):
    """A method that knows when a model or a fleet does not suit it."""

    def cautions(self, model: Model, capacities: Sequence[float]) -> list[str]:
        """What to warn of before the first round, one line each.

        Args:
            model: The model.
            capacities: Those of the fleet.
        """


@runtime_checkable
class Scored(Protocol):
    """A method that maintains an importance of every maskable coordinate."""

    def importance(self, state: State, params: Params, client: Client) -> Tensor | None:
        """The maintained score f̄ as it stands for a client, shape ``(d,)``; None before any evidence."""


@runtime_checkable
class ClientScored(Protocol):
    """A method whose clients can keep their scores themselves, so that the server never sees them."""

    @property
    def shares_a_score(self) -> bool:
        """Whether a client's score is blended with one that the server holds."""

    def check_client_scores(self) -> None:
        """Raise ValueError where a client cannot choose its mask by what it knows itself."""

    def shared_score(self, state: State) -> Tensor:
        """The score that the server holds, shape ``(d,)``; only where there is one."""

    def with_shared_score(self, state: State, score: Tensor) -> State:
        """A state that has it, as a client knows it."""


@runtime_checkable
class Signed(Protocol):
    """A method whose loss is no cross-entropy, or whose statistic no mean of squares: they may be below 0."""

    @property
    def signed(self) -> Collection[str]:
        """Which: of ``loss`` and ``statistic``."""


@runtime_checkable
class ScoresUnits(Protocol):
    """A method whose uploads have a statistic of channels, ``observed = "units"``."""

    def num_units(self, model: Model) -> int:
        """How many numbers that of the whole model has: the channels of all axes."""


@runtime_checkable
class Observes(Protocol):
    """A method that knows beforehand of what a round's uploads have a statistic: what privacy needs of it."""

    def observes(self, model: Model, t: int) -> Literal["held", "all", "units"] | None:
        """``observed`` of the uploads of round t; None: they have no statistic."""


_PROTOCOLS = (Cautious, Scored, ClientScored, Signed, ScoresUnits, Observes)
OPTIONAL = tuple(name for protocol in _PROTOCOLS for name in vars(protocol) if name[0] != "_")
"""What only some methods are asked for, and only by having it: no setting may have such a name."""
