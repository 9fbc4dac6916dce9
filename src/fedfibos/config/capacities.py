"""Which client can afford how much: a table capacity -> share of the clients, dealt out exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fedfibos.common.streams import stream
from fedfibos.common.validation import FieldError
from fedfibos.submodel import check_capacity

UNIFORM: Mapping[float, float] = {1.0: 0.2, 0.5: 0.2, 0.25: 0.2, 0.125: 0.2, 0.0625: 0.2}
NON_UNIFORM: Mapping[float, float] = {1.0: 0.1, 0.5: 0.1, 0.25: 0.3, 0.125: 0.3, 0.0625: 0.2}
TABLES: Mapping[str, Mapping[float, float]] = {"uniform": UNIFORM, "non-uniform": NON_UNIFORM}
"""The paper's two fleets, by name."""

SHARES_TOLERANCE = 1e-4
"""How far the shares may be from summing to 1, so that thirds can be written 0.33333."""


def check_table(table: Mapping[float, float], num_clients: int) -> None:
    """Raise ValueError unless the table can be dealt to that many clients.

    Capacities must be in (0, 1], shares above 0 and summing to 1, and every capacity must get a client.
    """
    if not table:
        raise FieldError("capacities", "capacities must name at least one capacity, got an empty table")
    for capacity, share in table.items():
        try:
            check_capacity(capacity)
        except ValueError as error:
            raise FieldError("capacities", str(error)) from None
        if not 0.0 < share <= 1.0:
            raise FieldError("capacities", f"the share of capacity {capacity:g} must be in (0, 1], got {share:g}")
    total = math.fsum(table.values())
    if abs(total - 1.0) > SHARES_TOLERANCE:
        raise FieldError("capacities", f"the shares of the capacities must sum to 1, got {total:g}")
    for capacity, count in zip(table, counts(table, num_clients), strict=True):
        if count == 0:
            raise FieldError(
                "capacities",
                f"every capacity must get at least one client, got none for capacity {capacity:g}: "
                f"its share is {table[capacity]:g} of {num_clients} clients",
            )


def counts(table: Mapping[float, float], num_clients: int) -> tuple[int, ...]:
    """Number of clients of each capacity, in the table's order, by largest remainder.

    Everyone gets the floor of its share; what is left goes to the largest remainders, ties to the capacity
    that the table names first. Shares count as the decimal fractions they are written as, so 0.29 of 100 is 29.

    Example:
        >>> counts({1.0: 1 / 3, 0.5: 1 / 3, 0.25: 1 / 3}, 10)
        (4, 3, 3)
    """
    shares = [Fraction(str(share)) for share in table.values()]
    quotas = [share / sum(shares) * num_clients for share in shares]
    dealt = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: (dealt[i] - quotas[i], i))
    for i in by_remainder[: num_clients - sum(dealt)]:
        dealt[i] += 1
    return tuple(dealt)


@dataclass(frozen=True)
class Capacities:
    """The capacity of every client in every round.

    Attributes:
        table: Capacity -> share of the clients.
        num_clients: N.
        assignment: ``fixed``: a client keeps its capacity; ``dynamic``: all clients are dealt afresh every
            round, so the counts over the fleet are exact in each round (those of a cohort are not).
        seed: Root of the run's random streams.
        assigned: The capacity of every client, by id, where that is known; ``table`` says the same in shares.
    """

    table: Mapping[float, float]
    num_clients: int
    assignment: Literal["fixed", "dynamic"]
    seed: int
    assigned: Sequence[float] | None = None

    def of(self, clients: Sequence[int], t: int) -> list[float]:
        """The capacities of some clients in round t; with a fixed assignment the others cost nothing."""
        if self.assigned is not None:
            return [self.assigned[client] for client in clients]
        order = self._order if self.assignment == "fixed" else self._dealt("capacities", t)
        limits = torch.tensor(list(itertools.accumulate(counts(self.table, self.num_clients))))
        chosen = torch.bucketize(order[torch.as_tensor(clients, dtype=torch.int64)], limits, right=True)
        listed = list(self.table)
        return [listed[position] for position in chosen.tolist()]

    @cached_property
    def _order(self) -> Tensor:
        """Place of every client in the table's list of capacities, where they keep it."""
        return self._dealt("capacities")

    def _dealt(self, *purpose: object) -> Tensor:
        check_table(self.table, self.num_clients)
        return torch.randperm(self.num_clients, generator=stream(self.seed, *purpose))
