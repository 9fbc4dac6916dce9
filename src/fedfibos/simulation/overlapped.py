"""Where clients train on a GPU with ``run.cuda_graphs``: several at a time, on streams and in workspaces of their own.

A client's batches of twenty images fill a fraction of a GPU, so a cohort's clients run side by side. One thread hands
their work to the device without waiting for it (see :mod:`~fedfibos.backend.recorded`); the wait is at the end of a
group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from fedfibos.analysis.accuracy import Trial
from fedfibos.params import Params
from fedfibos.round import Job
from fedfibos.simulation.setting import Setting
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Upload

AT_A_TIME = 10
"""Clients side by side. Each takes a workspace, gradients, activations and a recording's memory."""


class Lane:
    """A stream and a workspace. On a CPU there are no streams, and what is handed to a lane is done at once."""

    def __init__(self, setting: Setting) -> None:
        model = setting.model
        self.setting = replace(setting, model=model.with_own_workspaces(recorded=True))
        self.stream = torch.cuda.Stream(model.device) if model.device.type == "cuda" else None

    def train(self, params: Params, client: Client, submodel: Submodel) -> Upload | str:
        """Hand over one client. Its work waits for what the caller's stream was given before."""
        _ = submodel.indicator  # clients share it: it is made once, here, and not by a lane that others overtake
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with self._current():
            return self.setting.train(params, client, submodel)

    def join(self) -> None:
        """The caller's stream goes on after this lane's work, and no memory of the lane is reused before it is done."""
        if self.stream is not None:
            self.stream.synchronize()

    def _current(self) -> AbstractContextManager[object]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


class Overlapped:
    """Trains ``width`` clients side by side on the setting's device; evaluates one submodel after another."""

    def __init__(self, setting: Setting, width: int = AT_A_TIME) -> None:
        self.setting = setting
        self.lanes = [Lane(setting) for _ in range(width)]

    def train(self, params: Params, jobs: Iterable[Job]) -> Iterator[tuple[Client, Upload | str]]:
        """See :data:`fedfibos.round.RunClients`."""
        queue = iter(jobs)
        while group := list(islice(queue, len(self.lanes))):
            outcomes = [
                (client, lane.train(params, client, submodel))
                for lane, (client, submodel) in zip(self.lanes, group, strict=False)
            ]
            for lane in self.lanes:
                lane.join()
            yield from outcomes

    def hits(self, params: Params, trials: Iterable[Trial]) -> Iterator[Tensor]:
        """See :data:`fedfibos.analysis.accuracy.RunTrials`."""
        return (self.setting.hits(params, trial) for trial in trials)

    def close(self) -> None:
        """Give the device's memory back: recordings and what lies on the streams would stay reserved."""
        self.lanes.clear()
        if self.setting.model.device.type == "cuda":
            torch.cuda.empty_cache()
