"""Work handed out ahead of its answers: a window of it at most, and the answers in the order of the jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Ticket = TypeVar("Ticket")
Answer = TypeVar("Answer")


def in_window(
    jobs: Iterable[Job],
    submit: Callable[[Job], Ticket],
    collect: Callable[[Job, Sequence[Ticket]], Answer],
    drop: Callable[[Ticket], object],
    size: int,
) -> Iterator[Answer]:
    """Yield the answer of every job, in their order, while later ones are worked at.

    The next job is made only when there is room for it. So whoever hands work out keeps a bounded part of it, however
    large the cohort and however slow its first client.

    Args:
        jobs: What is to be done.
        submit: Hands a job out, and returns at once.
        collect: Waits for the answer of a job, whose ticket is the first of those given; the others are of the jobs
            next in turn.
        drop: Told of every ticket whose answer nobody waits for any more, where the caller stops early.
        size: Jobs handed out and not yet answered for, at most; at least 1.
    """
    pending: deque[tuple[Job, Ticket]] = deque()

    def first() -> Answer:
        answer = collect(pending[0][0], [ticket for _, ticket in pending])
        pending.popleft()
        return answer

    try:
        for job in jobs:
            pending.append((job, submit(job)))
            if len(pending) >= size:
                yield first()
        while pending:
            yield first()
    finally:
        for _, ticket in pending:
            drop(ticket)
