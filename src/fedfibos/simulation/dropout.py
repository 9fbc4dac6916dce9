"""Participants that are handed a submodel and never answer, simulated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch

from fedfibos.common.streams import stream
from fedfibos.params import Params
from fedfibos.round import Job, RunClients
from fedfibos.types import Client, Upload

NO_ANSWER = "did not answer"
"""The reason that a round gives for them."""


def draw_silent(cohort: Sequence[int], rate: float, seed: int, t: int, one_answers: bool = True) -> frozenset[int]:
    """Who of a round's cohort does not answer: each with probability ``rate``, on a stream of its own.

    With ``one_answers`` at least one does: where all would be silent, the one that was the closest to answering. Under
    privacy that cannot be: whether one client's upload counts would depend on the others.
    """
    if rate == 0.0 or not cohort:
        return frozenset()
    draws = {client: float(torch.rand((), generator=stream(seed, "answers", t, client))) for client in cohort}
    surely = max(draws, key=lambda client: draws[client]) if one_answers else None
    return frozenset(client for client, draw in draws.items() if draw < rate and client != surely)


def leaving_out(run: RunClients, absent: frozenset[int]) -> RunClients:
    """``run`` for those that answer; the others' outcome is that they did not, in their place."""

    def run_answering(params: Params, jobs: Iterable[Job]) -> Iterator[tuple[Client, Upload | str]]:
        passed: list[Client] = []  # in the order of the jobs, which is that of the ids

        def answering() -> Iterator[Job]:
            for client, submodel in jobs:
                if client.id in absent:
                    passed.append(client)
                else:
                    yield client, submodel

        for client, outcome in run(params, answering()):
            while passed and passed[0].id < client.id:
                yield passed.pop(0), NO_ANSWER
            yield client, outcome
        yield from ((client, NO_ANSWER) for client in passed)

    return run_answering
