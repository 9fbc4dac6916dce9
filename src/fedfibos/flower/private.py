"""A private fleet: what it refuses, what makes its rounds private, and what they have spent."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.flower.task import FleetTask
from fedfibos.method import Observes
from fedfibos.privacy import refusals
from fedfibos.privacy.accountant import Ledger
from fedfibos.privacy.mechanism import Level, Private
from fedfibos.privacy.settings import Privacy
from fedfibos.soundness import signed_by
from fedfibos.types import Client

LOG = logging.getLogger("flwr")


class FleetAccount:
    """What makes the rounds of a fleet private, and what they have spent so far.

    Who takes part is no secret: devices come and go, and are not drawn. So the sums are divided by the clients that
    were asked, whoever answered, and epsilon is that of the client that was asked most often.
    """

    def __init__(self, settings: Privacy, task: FleetTask, past: Sequence[Mapping[str, Any]]) -> None:
        """Start, or go on.

        Args:
            settings: Of privacy.
            task: What is run.
            past: Lines of ``rounds.jsonl`` so far.

        Raises:
            MissingExtraError: The accountant's library is not installed.
            ValueError: The task asks for something that would show clients' data.
        """
        _check(settings, task)
        self._settings, self._task = settings, task
        self._ledger = Ledger(settings, task.federation.cohort, task.federation.cohort, signed_by(task.method))
        if settings.seed is not None:
            LOG.warning("privacy.seed is in the run configuration, which every device reads: for tests alone")
        self._seed = secrets.randbits(63) if settings.seed is None else settings.seed
        for line in past:
            self.spend(line["participants"], line["round"] - 1)

    def private(self, cohort: Sequence[Client]) -> Private:
        """What makes a round of those clients private."""
        first = {client.capacity: client for client in reversed(cohort)}
        capacities = [client.capacity for client in cohort]
        levels = tuple(Level(first[level], capacities.count(level)) for level in sorted(first, reverse=True))
        return Private(self._settings, self._seed, levels, self._task.model)

    def spend(self, participants: Sequence[int], t: int) -> float:
        """Note round t; ε of the rounds so far."""
        method = self._task.method
        self._ledger.spend(participants, isinstance(method, Observes) and bool(method.observes(self._task.model, t)))
        return self._ledger.epsilon()


def _check(settings: Privacy, task: FleetTask) -> None:
    federation = task.federation
    if settings.sampling != "known":
        raise ValueError(
            "over Flower who takes part is no secret: set privacy.sampling = 'known', got the value "
            f"{settings.sampling!r}"
        )
    refusals.check_private(settings, task.method, task.model, task.local, task.server)
    if federation.weighting != "uniform":
        raise ValueError("privacy needs uploads of equal weight: set federation.weighting = 'uniform'")
    if federation.extra:
        raise ValueError(
            "under privacy whose uploads count may not depend on others' uploads: set federation.extra = 0, got "
            f"{federation.extra}"
        )
    if federation.client_records:
        raise ValueError("privacy covers no record of single clients: set federation.client_records = false")
    if federation.best == "loss":
        raise ValueError("under privacy no training loss is on record: choose another federation.best")
    if federation.checkpoint_every != 1:
        raise ValueError(
            "a private round must be on the disk before it is sent, else a restarted server sends it again with other "
            f"noise: set federation.checkpoint_every = 1, got {federation.checkpoint_every}"
        )
