"""Where clients train: in this process, or in worker processes of one torch thread each.

Both give the same results to the bit: a client's training depends on its own random streams alone, and outcomes are
handed on in the order of the jobs whichever finishes first.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedfibos.analysis.accuracy import Trial
from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.channels.family import depths, masks_of, slice_within
from fedfibos.common.user_code import describe_error, users_frame
from fedfibos.model import Model
from fedfibos.params import Layout, Params
from fedfibos.round import Job
from fedfibos.simulation.overlapped import Overlapped
from fedfibos.simulation.setting import Setting
from fedfibos.submodel import Mask, Slice, Submodel, full
from fedfibos.types import Client, Upload

Outcome = TypeVar("Outcome")


class WorkerError(RuntimeError):
    """Training or evaluating a client failed, here or in a worker process; or such a process ended."""


@contextmanager
def _failing_alike(client: Client | None) -> Iterator[None]:
    """Whatever stops a client's training (evaluation: None), a line about it: the same here and in a worker process.

    Raises:
        WorkerError: The line.
        ValueError: What the library itself refuses.
    """
    try:
        yield
    except ConnectionError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and users_frame(error) is None:
            raise  # what the library refuses, in a line already
        at = "in evaluation" if client is None else f"training client {client.id}"
        raise WorkerError(f"{describe_error(error)} ({at})") from error


class InProcess:
    """Trains and evaluates here, one client after another."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def train(self, params: Params, jobs: Iterable[Job]) -> Iterator[tuple[Client, Upload | str]]:
        """See :data:`fedfibos.round.RunClients`."""
        for client, submodel in jobs:
            with _failing_alike(client):
                outcome = self.setting.train(params, client, submodel)
            yield client, outcome

    def hits(self, params: Params, trials: Iterable[Trial]) -> Iterator[Tensor]:
        """See :data:`fedfibos.analysis.accuracy.RunTrials`."""
        for trial in trials:
            with _failing_alike(None):
                found = self.setting.hits(params, trial)
            yield found

    def close(self) -> None:
        """Nothing to stop."""


@dataclass
class _Slot:
    """Memory shared with one worker, so that no parameter-sized tensor goes through a pipe."""

    depths: Tensor
    index: Tensor
    delta: Tensor
    statistic: Tensor


@dataclass(frozen=True)
class _Packed:
    """A submodel without its large tensors.

    Attributes:
        counts: Coordinates that it holds, and where it is a mask those that its nested members hold.
        nested: Channels that each nested slice keeps of those that the client holds (:attr:`Slice.units`).
        layout: Of a slice.
        widths: Of a slice.
        units: How many channels a slice holds.
    """

    counts: tuple[int, ...]
    nested: list[np.ndarray[Any, np.dtype[np.int64]]]
    layout: Layout | None = None
    widths: tuple[tuple[str, int], ...] = ()
    units: int = 0


@dataclass(frozen=True)
class _Reply:
    """An upload without its large tensors."""

    loss: float
    num_steps: int
    statistic_size: int | None
    observed: Literal["held", "all", "units"]
    counted: np.ndarray[Any, np.dtype[np.bool_]] | None


def _shared(size: int, dtype: torch.dtype) -> Tensor:
    """Zeros that processes share; memory that is never written is never taken (an index, where there are no slices)."""
    storage = torch.UntypedStorage._new_shared(size * dtype.itemsize, device="cpu")
    return torch.empty(0, dtype=dtype).set_(storage, 0, (size,))  # type: ignore[call-overload, no-any-return]


class WorkerPool:
    """Trains and evaluates in worker processes.

    An upload's tensors live in the worker's slot: they are valid until the consumer asks for the next outcome.
    """

    def __init__(self, setting: Setting, num_workers: int) -> None:
        layout = setting.model.layout
        forks = sys.platform == "linux"
        context = multiprocessing.get_context("fork") if forks else multiprocessing.get_context("spawn")
        self._layout = layout
        self._params = _shared(layout.size, torch.float32)
        self._slots = [
            _Slot(
                _shared(layout.size, torch.uint8),
                _shared(layout.size, torch.int64),
                _shared(layout.size, torch.float32),
                _shared(layout.size, torch.float32),
            )
            for _ in range(num_workers)
        ]
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
            client, submodel = job
            self._send(number, ("train", replace(client, data=None), self._pack(number, submodel)))

        def receive(number: int, job: Job, reply: Any, keep: bool) -> tuple[Client, Upload | str]:
            client, submodel = job
            return client, reply if isinstance(reply, str) else self._upload(number, submodel, reply, keep)

        self._params.copy_(params.flat)
        return self._in_order(jobs, send, receive)

    def hits(self, params: Params, trials: Iterable[Trial]) -> Iterator[Tensor]:
        """See :data:`fedfibos.analysis.accuracy.RunTrials`."""

        def send(number: int, trial: Trial) -> None:
            indices = None if trial.indices is None else trial.indices.numpy()
            self._send(number, ("hits", indices, self._pack(number, trial.submodel)))

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

    def _pack(self, number: int, submodel: Submodel) -> _Packed:
        """Put a submodel's large tensor into the worker's slot; return what goes through the pipe."""
        slot = self._slots[number]
        nested = [member.units.cpu().numpy() for member in submodel.nested if member.units is not None]
        if isinstance(submodel, Slice):
            size = submodel.index.numel()
            slot.index[:size] = submodel.index
            units = 0 if submodel.units is None else submodel.units.numel()
            return _Packed((size,), nested, submodel.layout, submodel.widths, units)
        masks = [submodel] if nested else [submodel, *submodel.nested]
        if any(mask.held is not None for mask in masks):
            slot.depths.copy_(depths(replace(submodel, nested=tuple(masks[1:]))))
        return _Packed(tuple(mask.num_held for mask in masks), nested)

    def _upload(self, number: int, submodel: Submodel, reply: _Reply, keep: bool) -> Upload:
        """The upload in a worker's slot; ``keep``: copied, so that it outlives the worker's next job."""
        slot = self._slots[number]
        delta = slot.delta if isinstance(submodel, Mask) else slot.delta[: submodel.num_held]
        statistic = None if reply.statistic_size is None else slot.statistic[: reply.statistic_size]
        if keep:
            delta, statistic = delta.clone(), None if statistic is None else statistic.clone()
        counted = None if reply.counted is None else torch.from_numpy(reply.counted)
        return Upload(submodel, delta, reply.loss, reply.num_steps, statistic, reply.observed, counted)

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


def _work(setting: Setting, flat: Tensor, slot: _Slot, pipe: Connection, inherited: list[Connection]) -> None:
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
            submodel = _unpack(slot, packed, setting.model)
            with _failing_alike(what if kind == "train" else None):
                if kind == "train":
                    outcome = setting.train(params, what, submodel)
                    reply: object = outcome if isinstance(outcome, str) else _deposit(slot, outcome)
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


def _unpack(slot: _Slot, packed: _Packed, model: Model) -> Submodel:
    submodel: Submodel
    if packed.layout is not None:
        units = torch.arange(packed.units) if packed.units else None
        submodel = Slice(slot.index[: packed.counts[0]], packed.layout, packed.widths, units=units)
    elif packed.counts == (model.layout.size,):
        submodel = full(model.layout)
    else:
        submodel = masks_of(slot.depths, packed.counts)
    if not packed.nested:
        return submodel
    members = (slice_within(submodel, torch.from_numpy(units), model.axes, model.layout) for units in packed.nested)
    return replace(submodel, nested=tuple(members))


def _deposit(slot: _Slot, upload: Upload) -> _Reply:
    """Copy the upload's large tensors into the slot; return the rest."""
    slot.delta[: upload.delta.numel()] = upload.delta
    if upload.statistic is not None:
        slot.statistic[: upload.statistic.numel()] = upload.statistic
    counted = None if upload.counted is None else upload.counted.numpy()
    size = None if upload.statistic is None else upload.statistic.numel()
    return _Reply(float(upload.loss), upload.num_steps, size, upload.observed, counted)


Executor = InProcess | WorkerPool | Overlapped


def executor(setting: Setting, num_workers: int, cuda_graphs: bool = False) -> Executor:
    """One worker trains in this process, more are processes of their own.

    On a GPU there is one, client after client, kernel by kernel; with ``cuda_graphs`` clients train side by side there
    and their steps are recorded.
    """
    if cuda_graphs and setting.model.device.type != "cpu":
        return Overlapped(setting)
    return InProcess(setting) if num_workers == 1 else WorkerPool(setting, num_workers)
