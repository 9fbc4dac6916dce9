"""What the strategy tells of a finished round, and the clients of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedfibos.channels.costs import Bounded
from fedfibos.flower.messages import Member
from fedfibos.flower.roster import Roster
from fedfibos.flower.task import FleetTask
from fedfibos.params import Params
from fedfibos.round import RoundReport
from fedfibos.types import Client, State


@dataclass(frozen=True)
class Round:
    """A finished round, as the strategy reports it.

    Attributes:
        number: Finished rounds.
        params: Global parameters after it.
        state: Server state after it.
        report: Who took part, who was rejected, bytes of the payloads each way.
        roster: The clients that were connected.
        payloads: Client -> bytes of the payloads to it and from it.
        refused: Node -> why its client took no part.
        skipped: What was tried before in this round, and brought too few uploads: reason, participants, rejected.
        left_out: Client -> why it was in no cohort, though connected.
        keys: Client -> fingerprint of its node's key, where Flower's grid tells.
        epsilon: What the rounds so far have spent, where they are private.
        dropped: Client -> why its work is not used, of those that were asked beyond the cohort.
        late: Client -> what came of it after the round that had asked.
        measured: Client -> its capacity as it was measured before this round; see :mod:`fedfibos.flower.measured`.
    """

    number: int
    params: Params
    state: State
    report: RoundReport
    roster: Roster
    payloads: Mapping[int, tuple[int, int]]
    refused: Mapping[int, str] = field(default_factory=dict)
    skipped: Sequence[Mapping[str, Any]] = ()
    left_out: Mapping[int, str] = field(default_factory=dict)
    keys: Mapping[int, str] = field(default_factory=dict)
    epsilon: float | None = None
    dropped: Mapping[int, str] = field(default_factory=dict)
    late: Mapping[int, str] = field(default_factory=dict)
    measured: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def clients_of(task: FleetTask, roster: Roster, ids: Sequence[int], t: int) -> list[Client]:
    """Those clients as they are in round t; their data stay with them."""
    members = list(roster.values())
    mean_size = sum(member.examples for member in members) / len(members)
    levels = [member.capacity for member in members]
    local = task.local.at_round(t, task.federation.rounds).with_levels(levels)
    limits = limits_by_capacity(members)
    weighting = task.federation.weighting

    def weight(client: int) -> float:
        if isinstance(weighting, tuple):
            return weighting[client] / (sum(weighting) / len(weighting))
        return 1.0 if weighting == "uniform" else roster[client].examples / mean_size

    return [
        Client(
            id=n,
            capacity=roster[n].capacity,
            round=t,
            seed=task.seed,
            local=local,
            weight=weight(n),
            budget=task.federation.budget,
            limits=limits.get(roster[n].capacity, ()),
        )
        for n in ids
    ]


def limits_by_capacity(members: Iterable[Member]) -> dict[float, tuple[tuple[Bounded, int], ...]]:
    """Capacity -> what bounds its slices: the tightest limits of the clients that have it, who hold the same ones."""
    found: dict[float, dict[Bounded, int]] = {}
    for member in members:
        of = found.setdefault(member.capacity, {})
        for name, limit in member.limits:
            of[name] = min(limit, of.get(name, limit))
    return {capacity: tuple(sorted(of.items())) for capacity, of in found.items()}
