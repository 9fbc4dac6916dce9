"""What the server knows of a round once it is over: who took part, what each sent, how long it took, what it held."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fedfibos.backend.resident import peak_resident
from fedfibos.params import Layout
from fedfibos.types import Upload, upload_bytes


@dataclass(frozen=True)
class RoundReport:
    """What happened in a round: who took part, who was rejected and why, mean loss, bytes sent each way.

    Bytes are those of all participants, rejected ones included: they were sent. Only who hands submodels out knows how
    many went down: :func:`merge` leaves that 0.

    Attributes:
        clients: Participant -> what is known of its part: ``capacity``, ``down`` and, where it sent an upload, ``up``,
            ``loss``, ``seconds``, ``memory``.
    """

    participants: tuple[int, ...]
    rejected: dict[int, str]
    loss: float
    bytes_down: int
    bytes_up: int
    clients: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


def part_of(upload: Upload, layout: Layout) -> dict[str, float]:
    """What a round's report says of an upload."""
    known = {"seconds": upload.seconds, "memory": upload.memory}
    measured = {name: number for name, number in known.items() if number is not None}
    return {"up": upload_bytes(upload, layout), "loss": float(upload.loss), **measured}


def measured(work: Callable[[], Upload | str]) -> Upload | str:
    """An outcome with the seconds that it took, and the memory that this process has held at most so far."""
    started = time.perf_counter()
    outcome = work()
    if isinstance(outcome, str):
        return outcome
    return replace(outcome, seconds=time.perf_counter() - started, memory=peak_resident() or None)
