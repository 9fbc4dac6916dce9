"""Which of the connected clients a round asks, and which may take part at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from fedfibos.flower.finished import clients_of
from fedfibos.flower.messages import Member
from fedfibos.flower.task import FleetTask
from fedfibos.params import Params
from fedfibos.round import sample
from fedfibos.types import State


def choose(
    task: FleetTask, t: int, ids: Sequence[int], kept_out: Mapping[int, str], failed: Collection[int]
) -> tuple[list[int], dict[int, str]]:
    """The cohort and the extra clients: sampled over the sorted ids of those that are connected and not kept out.

    Where the round is tried again, of those that have not failed in it, if they are enough for a cohort. Nobody is kept
    out where too few would be left.

    Args:
        task: What is run.
        t: Round counter.
        ids: The clients that are connected, ascending.
        kept_out: Client -> why it is not to be asked.
        failed: Clients that have failed in this round.

    Returns:
        Whom to ask, and who was there and is not asked, with the reason.
    """
    federation, wanted = task.federation, task.federation.cohort_in(t)
    sound = [n for n in ids if n not in kept_out]
    others = [n for n in sound if n not in failed]
    pool: Sequence[int] = others if len(others) >= min(wanted, len(sound)) else sound
    if len(pool) < federation.min_participants:
        pool = ids
    left_out = {n: why for n, why in kept_out.items() if n in ids and n not in pool}
    return [pool[position] for position in sample(len(pool), wanted + federation.extra, task.seed, t)], left_out


def check_member(
    task: FleetTask, member: Member, t: int, state: State, params: Params, warn: Callable[[str], None]
) -> None:
    """Look at a client that has declared itself.

    What it has of the model that no round sends may differ in the last bit from one machine to another, or be another
    model's: that is for somebody to look at.

    Args:
        task: What is run.
        member: The client.
        t: Round counter.
        state: The server's.
        params: The global parameters.
        warn: Called with what is to be looked at.

    Raises:
        ValueError: The method has no submodel for it (a slice narrower than one channel), or the weights no number.
    """
    if member.untrained != task.untrained_sha256:
        what = "frozen weights or buffers"
        if task.federation.scores == "client":
            what = "initial values, frozen weights or buffers"
        warn(
            f"client {member.client} has other {what} than the server: build the model from a fixed seed and the same "
            "files"
        )
    weighting = task.federation.weighting
    if isinstance(weighting, tuple) and member.client >= len(weighting):
        raise ValueError(
            f"federation.weighting has {len(weighting)} numbers, clients 0 to {len(weighting) - 1}: it must have one "
            f"for client {member.client} too"
        )
    (client,) = clients_of(task, {member.client: member}, [member.client], t)
    task.method.extract(task.model, state, params, client)
