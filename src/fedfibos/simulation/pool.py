"""Clients trained in worker processes of one torch thread each."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedfibos.analysis.accuracy import Trial
from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.params import Params
from fedfibos.round import Job
from fedfibos.simulation.failures import WorkerError, failing_alike
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.slots import (
    Slot,
    deposit,
    pack,
    pack_job,
    read_upload,
    shared_zeros,
    slot_of,
    unpack,
    unpack_client,
)
from fedfibos.types import Client, Upload

Outcome = TypeVar("Outcome")


class WorkerPool:
    """Trains and evaluates in worker processes.

    An upload's tensors live in the worker's slot: they are valid until the consumer asks for the next outcome.
    """

    def __init__(self, setting: Setting, num_workers: int) -> None:
        layout = setting.model.layout
        forks = sys.platform == "linux"
        context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
        self._params = shared_zeros(layout.size, torch.float32)
        self._slots = [slot_of(layout.size) for _ in range(num_workers)]
        pairs = [context.Pipe() for _ in range(num_workers)]
        self._pipes: list[Connection] = [ours for ours, _ in pairs]
        self._processes = []
        for number, slot in enumerate(self._slots):
            # A forked worker inherits every pipe made so far; it must close all but its own end, or it would
            # never see the end of file that tells it that this process is gone.
            inherited = [end for pair in pairs for end in pair if end is not pairs[number][1]]
            process = context.Process(
                target=_work,
                args=(setting, self._params, slot, pairs[number][1], inherited if forks else []),
                daemon=True,
            )
            process.start()
            self._processes.append(process)
        for _, theirs in pairs:
            theirs.close()

    def train(self, params: Params, jobs: Iterable[Job]) -> Iterator[tuple[Client, Upload | str]]:
        """See :data:`fedfibos.round.RunClients`."""

        def send(number: int, job: Job) -> None:
            self._send(number, ("train", *pack_job(self._slots[number], *job)))

        def receive(number: int, job: Job, reply: Any, keep: bool) -> tuple[Client, Upload | str]:
            client, submodel = job
            return client, reply if isinstance(reply, str) else read_upload(self._slots[number], submodel, reply, keep)

        self._params.copy_(params.flat)
        return self._in_order(jobs, send, receive)

    def hits(self, params: Params, trials: Iterable[Trial]) -> Iterator[Tensor]:
        """See :data:`fedfibos.analysis.accuracy.RunTrials`."""

        def send(number: int, trial: Trial) -> None:
            indices = None if trial.indices is None else trial.indices.numpy()
            self._send(number, ("hits", indices, pack(self._slots[number], trial.submodel)))

        self._params.copy_(params.flat)
        return self._in_order(trials, send, lambda number, trial, reply, keep: torch.from_numpy(reply))

    def close(self) -> None:
        """Stop the workers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()

    def _in_order(
        self,
        jobs: Iterable[Any],
        send: Callable[[int, Any], None],
        receive: Callable[[int, Any, Any, bool], Outcome],
    ) -> Iterator[Outcome]:
        """Keep every worker busy; yield outcomes in the order of the jobs."""
        queue = iter(enumerate(jobs))
        upcoming = next(queue, None)
        running: dict[int, tuple[int, Any]] = {}  # worker -> (position, job)
        early: dict[int, Outcome] = {}
        position = 0
        while upcoming is not None or running or early:
            for number in range(len(self._pipes)):
                if upcoming is not None and number not in running:
                    send(number, upcoming[1])
                    running[number] = upcoming
                    upcoming = next(queue, None)  # extracted while the workers work
            if position in early:
                yield early.pop(position)
                position += 1
                continue
            for pipe in wait([self._pipes[number] for number in running]):
                number = self._pipes.index(pipe)  # type: ignore[arg-type]
                place, job = running[number]
                reply = self._reply(number)
                if place == position:
                    yield receive(number, job, reply, False)
                    position += 1
                else:
                    early[place] = receive(number, job, reply, True)
                del running[number]

    def _send(self, number: int, message: Any) -> None:
        try:
            self._pipes[number].send(message)
        except ConnectionError:
            raise self._ended(number) from None

    def _reply(self, number: int) -> Any:
        try:
            kind, reply = self._pipes[number].recv()
        except (EOFError, ConnectionError):
            raise self._ended(number) from None
        if kind == "error":
            line, trace, refused = reply
            error = (ValueError if refused else WorkerError)(line)
            error.add_note(trace)
            raise error
        if kind == "interrupt":
            raise KeyboardInterrupt
        return reply

    def _ended(self, number: int) -> WorkerError:
        self._processes[number].join(timeout=5)
        code = self._processes[number].exitcode
        return WorkerError(f"a worker process ended unexpectedly (exit code {code}; -9 is out of memory or a kill)")


def _work(setting: Setting, flat: Tensor, slot: Slot, pipe: Connection, inherited: list[Connection]) -> None:
    """Serve one pipe until it closes. Ctrl-C and SIGTERM, which the whole group may get, are the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for end in inherited:
        end.close()
    torch.set_num_threads(1)
    keep_freed_memory()
    params = Params(setting.model.layout, flat)
    while True:
        try:
            kind, what, packed = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            submodel = unpack(slot, packed, setting.model)
            with failing_alike(what if kind == "train" else None):
                if kind == "train":
                    outcome = setting.train(params, unpack_client(slot, what, packed), submodel)
                    reply: object = outcome if isinstance(outcome, str) else deposit(slot, outcome)
                else:
                    indices = None if what is None else torch.from_numpy(what)
                    reply = setting.hits(params, Trial(submodel, indices)).numpy()
            pipe.send(("done", reply))
        except ConnectionError:
            return
        except (WorkerError, ValueError) as error:
            with suppress(ConnectionError):
                pipe.send(("error", (str(error), traceback.format_exc(), isinstance(error, ValueError))))
        except KeyboardInterrupt:  # raised by a user's code: the signal itself is the parent's
            with suppress(ConnectionError):
                pipe.send(("interrupt", None))
