"""What the rounds so far have spent: epsilon, by the dp-accounting library.

Every round releases one sum of updates and, where there are statistics, one sum of those, of the same cohort. Both are
one Gaussian mechanism: in units of its noise a client moves the pair by at most √(s²/z² + s'²/z'²), where it moves the
sums by at most s and s' clips.

- ``poisson``: with or without one client a sum differs by one clip, s = s' = 1. The mechanism is a Gaussian on a
  Poisson sample.
- ``fixed``: with one client's data replaced the sum of updates may differ by two clips, s = 2. Two vectors that are not
  negative are at most √2 apart, so s' = √2 (2 where statistics may be negative). The mechanism is a Gaussian on a
  sample without replacement.
- ``known``: with or without one client's data s = s' = 1, in the rounds that the client was in, and 0 in the others.

Where everybody takes part in every round, and for ``known``, the composition of Gaussians is a Gaussian, and epsilon is
exact (Balle and Wang 2018). Otherwise it is an upper bound by Rényi differential privacy.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfibos.common.extras import extra
from fedfibos.privacy.settings import Privacy, Sampling

LARGEST = sys.float_info.max
"""What stands for an infinite epsilon, which no JSON file can hold."""


class Ledger:
    """The privacy that the rounds of a run have spent."""

    def __init__(self, settings: Privacy, clients: int, cohort: int, signed: Collection[str] = ()) -> None:
        """Nothing is spent yet.

        Args:
            settings: Bounds, noise, sampling, delta.
            clients: N, of whom a cohort is drawn.
            cohort: A, participants of a round (``poisson``: expected).
            signed: ``statistic`` where statistics may be negative.

        Raises:
            MissingExtraError: dp-accounting is not installed.
        """
        check_installed()
        self.settings, self._clients, self._cohort = settings, clients, min(cohort, clients)
        self._signed = "statistic" in signed
        self._rounds = {False: 0, True: 0}
        self._of_client: dict[int, float] = {}

    def spend(self, participants: Sequence[int], statistic: bool) -> None:
        """Note one round.

        Args:
            participants: Its cohort, whoever answered; only ``known`` looks at it.
            statistic: Whether statistics were released too.
        """
        self._rounds[statistic] += 1
        if self.settings.sampling == "known":
            loss = self._multiplier(statistic) ** -2
            for client in participants:
                self._of_client[client] = self._of_client.get(client, 0.0) + loss

    def epsilon(self) -> float:
        """ε at the settings' δ, after all rounds noted."""
        if self.settings.sampling == "known":
            return exact(max(self._of_client.values(), default=0.0), self.settings.delta)
        spent = {self._multiplier(statistic): rounds for statistic, rounds in self._rounds.items() if rounds}
        if self._cohort == self._clients:
            return exact(sum(rounds * z**-2 for z, rounds in spent.items()), self.settings.delta)
        return by_renyi(self.settings.sampling, self._clients, self._cohort, spent, self.settings.delta)

    def _multiplier(self, statistic: bool) -> float:
        """Noise over what one client can move, of all that a round releases."""
        update, scores = (2.0, 2.0 if self._signed else math.sqrt(2.0)) if self._replaces else (1.0, 1.0)
        loss = (update / self.settings.noise) ** 2
        if statistic:
            assert self.settings.statistic_noise is not None
            loss += (scores / self.settings.statistic_noise) ** 2
        return 1.0 / math.sqrt(loss)

    @property
    def _replaces(self) -> bool:
        return self.settings.sampling == "fixed"


def exact(loss: float, delta: float) -> float:
    """ε of Gaussian mechanisms one after another.

    Args:
        loss: Σ 1/z² over them.
        delta: δ.
    """
    if loss == 0.0:
        return 0.0
    with extra("privacy"):
        from dp_accounting import get_epsilon_gaussian
    with np.errstate(all="ignore"):  # of almost no noise
        return min(float(get_epsilon_gaussian(loss**-0.5, delta)), LARGEST)


def by_renyi(sampling: Sampling, clients: int, cohort: int, spent: dict[float, int], delta: float) -> float:
    """ε of Gaussian mechanisms on samples of the clients, an upper bound.

    Args:
        sampling: ``poisson`` or ``fixed``.
        clients: N.
        cohort: A, below N.
        spent: Noise multiplier -> number of rounds.
        delta: δ.
    """
    with extra("privacy"):
        from dp_accounting.rdp import compute_epsilon
    total = sum(rounds * _renyi(sampling, clients, cohort, z)[1] for z, rounds in spent.items())
    orders = _renyi(sampling, clients, cohort, next(iter(spent)))[0] if spent else np.array([2.0])
    return min(float(compute_epsilon(orders, np.broadcast_to(total, orders.shape), delta)[0]), LARGEST)


@cache
def _renyi(sampling: Sampling, clients: int, cohort: int, z: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Orders, and the Rényi divergence of one round at each."""
    with extra("privacy"):
        from dp_accounting import (
            GaussianDpEvent,
            NeighboringRelation,
            PoissonSampledDpEvent,
            SampledWithoutReplacementDpEvent,
        )
        from dp_accounting.rdp import RdpAccountant
    gaussian = GaussianDpEvent(z)
    if sampling == "poisson":
        event, neighbours = PoissonSampledDpEvent(cohort / clients, gaussian), NeighboringRelation.ADD_OR_REMOVE_ONE
    else:
        event = SampledWithoutReplacementDpEvent(clients, cohort, gaussian)
        neighbours = NeighboringRelation.REPLACE_ONE
    accountant = RdpAccountant(neighboring_relation=neighbours)
    with _quiet():
        accountant.compose(event)
    return accountant.orders, accountant.rdp


@contextmanager
def _quiet() -> Iterator[None]:
    """The library says of each order that it leaves out that it does; the bound holds without it."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def check_installed() -> None:
    """Raise MissingExtraError where the accountant's library is not installed."""
    with extra("privacy"):
        import dp_accounting  # noqa: F401
