"""Clients, rounds and capacities: the section ``[federation]``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from fedfibos.channels.costs import Bounded
from fedfibos.common.validation import check_name, listed, toml_text
from fedfibos.config.capacities import TABLES, check_table
from fedfibos.config.devices import Devices, check_devices
from fedfibos.config.growth import check_growth, cohort_in
from fedfibos.config.limits import CONFIG, LARGEST, Positive

WEIGHTINGS = ("uniform", "samples")
"""Words that say how uploads are weighted; a list of numbers does too."""


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
                f"weighting must be numbers above 0, at most {LARGEST:,}, got {toml_text(weight)} for client {client}"
            )
    return tuple(map(float, value))


Weighting = Annotated[Literal["uniform", "samples"] | tuple[float, ...], BeforeValidator(_weights)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"capacities must be numbers in (0, 1] = shares of the clients, got {text!r}") from None


@dataclass(frozen=True, config=CONFIG)
class Federation:
    """Clients, rounds and capacities.

    Attributes:
        clients: N, clients in all.
        cohort: A, participants of a round.
        rounds: T, rounds in all.
        grow_from: Participants of the first round, of a cohort that grows; not set: ``cohort`` throughout.
        grow_over: Rounds until it has grown to ``cohort``, evenly and rounded down.
        capacities: Capacity -> share of the clients; or ``uniform`` or ``non-uniform``, the paper's tables.
        budget: What a capacity is a share of, for methods that cut channels: ``parameters`` (the maskable ones),
            ``macs`` (of an example's forward pass), ``memory`` (of a training step at its peak), or ``bytes`` (of a
            round, both ways). With several, a slice keeps to its share of each. Masks are always shares of the
            parameters, and take the memory and the operations of the whole model.
        assigned: The capacity of every client, by id, for fleets whose devices are known (``natural`` partitions); it
            replaces ``capacities``.
        devices: Classes of devices in their own units, each with its share of the clients; they replace ``capacities``.
            A client's capacity is the largest that its device can hold under the method, and a class that can hold none
            takes no part.
        assignment: ``fixed``, or ``dynamic``: every client's capacity is redrawn each round.
        weighting: Weight of an upload in the averages: ``uniform``, the client's number of ``samples``, or a list: a
            number above 0 for every client, by id.
        dropout: Probability that a participant gets its submodel and never answers. It is drawn for every client and
            round. At least one client of a cohort answers.
        patience: Rounds in a row without a usable upload, or with a merge that is not finite, after which the run
            stops. Each such round is skipped and changes nothing.
    """

    clients: Positive
    cohort: Positive
    rounds: Positive
    capacities: Annotated[dict[float, float], BeforeValidator(_capacity_table)] = dataclasses.field(
        default_factory=lambda: dict(TABLES["uniform"])
    )
    budget: Budget = ("parameters",)
    assigned: tuple[float, ...] | None = None
    devices: Devices = ()
    assignment: Literal["fixed", "dynamic"] = "fixed"
    weighting: Weighting = "uniform"
    dropout: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.0
    patience: Positive = 10
    grow_from: Positive | None = None
    grow_over: Positive | None = None

    def __post_init__(self) -> None:
        if self.cohort > self.clients:
            raise ValueError(f"cohort must be at most clients, {self.clients}, got {self.cohort}")
        check_growth(self.cohort, self.grow_from, self.grow_over)
        if isinstance(self.weighting, tuple) and len(self.weighting) != self.clients:
            raise ValueError(
                f"weighting must be {self.clients} numbers, one a client, got {len(self.weighting)} of them"
            )
        if self.devices:
            self._check_devices()
            object.__setattr__(self, "capacities", {})  # a method's own: known once the model is
            return
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

    def cohort_in(self, t: int) -> int:
        """Participants of round t."""
        return cohort_in(t, self.cohort, self.grow_from, self.grow_over)

    @property
    def cohort_label(self) -> str:
        """``10``, or ``2 to 10`` of a cohort that grows."""
        first = self.cohort_in(0)
        return str(self.cohort) if first == self.cohort else f"{first} to {self.cohort}"

    def _check_devices(self) -> None:
        check_devices(self.devices, self.clients)
        if self.assigned is not None:
            raise ValueError("devices say what every client can afford, and so does assigned: leave one out")
        if self.assignment != "fixed":
            raise ValueError(f"devices need assignment = 'fixed', a client's device stays, got {self.assignment!r}")
