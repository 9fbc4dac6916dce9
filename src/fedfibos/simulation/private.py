"""A private simulation: what it refuses, what makes its rounds private, and what they have spent."""

from __future__ import annotations

from collections.abc import Sequence

from fedfibos.config.experiment import Experiment
from fedfibos.method import Method, Observes
from fedfibos.model import Model
from fedfibos.privacy import refusals
from fedfibos.privacy.accountant import Ledger
from fedfibos.privacy.mechanism import Private
from fedfibos.privacy.settings import Privacy
from fedfibos.simulation.population import Population
from fedfibos.soundness import signed_by


def check_private(experiment: Experiment, method: Method, model: Model) -> None:
    """Raise ValueError where an experiment asks for privacy, and for something that would show clients' data."""
    if (settings := experiment.privacy) is None:
        return
    federation = experiment.federation
    refusals.check_private(settings, method, model, experiment.local, experiment.server)
    if federation.grow_from is not None:
        raise ValueError(
            "privacy counts with one size of the cohort in all rounds, got one that grows: leave out "
            "federation.grow_from"
        )
    if federation.weighting != "uniform":
        raise ValueError(
            "privacy needs uploads of equal weight, got federation.weighting = "
            f"{'a list' if isinstance(federation.weighting, tuple) else repr(federation.weighting)}: set 'uniform'"
        )
    if federation.devices and experiment.local.steps is None:
        raise ValueError(
            "privacy needs capacities that no client's number of examples moves, got federation.devices with "
            "local.epochs: set local.steps"
        )
    if experiment.run.client_records:
        raise ValueError("privacy covers no record of single clients, got run.client_records = true: leave it out")
    if experiment.checkpoint.best == "loss":
        raise ValueError("under privacy no training loss is on record: choose another checkpoint.best")
    if settings.delta >= 1.0 / federation.clients:
        raise ValueError(
            f"privacy.delta must be below 1 / clients = {1 / federation.clients:g}, else one client's data may be "
            f"published as they are; got {settings.delta:g}"
        )


class Account:
    """What makes the rounds of a run private, and what they have spent so far."""

    def __init__(
        self, settings: Privacy, experiment: Experiment, method: Method, model: Model, population: Population
    ) -> None:
        self._settings, self._method, self._model, self._population = settings, method, model, population
        self._size = experiment.federation.cohort
        self._seed = experiment.seed if settings.seed is None else settings.seed
        clients = len(population.ids)
        self._ledger = Ledger(settings, clients, self._size, signed_by(method, model.task))

    def go_on(self, rounds: int) -> None:
        """Note the rounds before."""
        for t in range(rounds):
            self.spend(t, self._population.cohort(self._size, t) if self._settings.sampling == "known" else ())

    def private(self, cohort: list[int], t: int) -> Private:
        """What makes round t private."""
        levels = self._population.levels(cohort, self._size, t)
        return Private(self._settings, self._seed, levels, self._model)

    def spend(self, t: int, cohort: Sequence[int]) -> float:
        """Note round t; ε of the rounds so far."""
        observes = isinstance(self._method, Observes) and self._method.observes(self._model, t) is not None
        self._ledger.spend(cohort, observes)
        return self._ledger.epsilon()
