"""Where clients train: in this process, in worker processes of one torch thread each, or on a Ray cluster.

All give the same results to the bit: a client's training depends on its own random streams alone, and outcomes are
handed on in the order of the jobs whichever finishes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, Protocol

from torch import Tensor

from fedfibos.analysis.accuracy import Trial
from fedfibos.params import Params
from fedfibos.round import Job
from fedfibos.simulation.failures import failing_alike
from fedfibos.simulation.overlapped import Overlapped
from fedfibos.simulation.pool import WorkerPool
from fedfibos.simulation.setting import Setting
from fedfibos.types import Client, Upload


class InProcess:
    """Trains and evaluates here, one client after another."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def train(self, params: Params, jobs: Iterable[Job]) -> Iterator[tuple[Client, Upload | str]]:
        """See :data:`fedfibos.round.RunClients`."""
        for client, submodel in jobs:
            with failing_alike(client):
                outcome = self.setting.train(params, client, submodel)
            yield client, outcome

    def hits(self, params: Params, trials: Iterable[Trial]) -> Iterator[Tensor]:
        """See :data:`fedfibos.analysis.accuracy.RunTrials`."""
        for trial in trials:
            with failing_alike(None):
                found = self.setting.hits(params, trial)
            yield found

    def close(self) -> None:
        """Nothing to stop."""


class Executor(Protocol):
    """Whoever trains and evaluates clients."""

    def train(self, params: Params, jobs: Iterable[Job]) -> Iterator[tuple[Client, Upload | str]]:
        """See :data:`fedfibos.round.RunClients`."""

    def hits(self, params: Params, trials: Iterable[Trial]) -> Iterator[Tensor]:
        """See :data:`fedfibos.analysis.accuracy.RunTrials`."""

    def close(self) -> None:
        """Stop what it started."""


Engine = Literal["embedded", "ray"]
"""Where clients train: on this machine, or on a Ray cluster."""


def executor(setting: Setting, num_workers: int, cuda_graphs: bool = False) -> Executor:
    """On this machine: one worker trains in this process, more are processes of their own.

    On a GPU there is one, client after client, kernel by kernel; with ``cuda_graphs`` clients train side by side there
    and their steps are recorded.
    """
    if cuda_graphs and setting.model.device.type != "cpu":
        return Overlapped(setting)
    return InProcess(setting) if num_workers == 1 else WorkerPool(setting, num_workers)
