"""Clients trained and evaluated as tasks of a Ray cluster; see :mod:`~fedfibos.simulation.ray_cluster`.

Parameters are put into the object store once a round, and each node's processes read one copy of them. Answers stay on
the nodes until it is their turn to be merged. Ray runs the tasks of a process or a node that died again, elsewhere; a
client's training depends on its own random streams alone, so it gives the same bytes.
"""

from __future__ import annotations

import signal
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import ray
from ray.exceptions import RayError
from torch import Tensor

from fedfibos.analysis.accuracy import Trial
from fedfibos.common.formatting import first_line
from fedfibos.common.user_code import describe_error
from fedfibos.params import Params
from fedfibos.round import Job
from fedfibos.simulation.failures import WorkerError, failing_alike
from fedfibos.simulation.ray_cluster import resource
from fedfibos.simulation.ray_home import Home
from fedfibos.simulation.ray_values import Packed, packed, tensor_on, unpacked
from fedfibos.simulation.ray_window import in_window
from fedfibos.simulation.setting import Setting
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Upload

Ref = Any
"""Of an object in the store."""

RETRIES = 3
"""How often a client is run again whose process or node died; more says that it is the client that kills them."""
AHEAD = 4
"""Answers that may be on their way to the head while one is merged."""
SUBMODELS = 16
"""Submodels kept in the store for clients that share one: those of a capacity, with most methods."""
PATIENCE = 10.0
"""Seconds to wait for an answer before looking whether the head node and any other is left to give it."""


class RayClients:
    """Trains and evaluates on the cluster that this process is connected to.

    An upload's tensors lie in the object store: they are valid until the consumer asks for the next outcome.
    """

    def __init__(self, setting: Setting, most: int | None = None) -> None:
        """Put what all clients need into the store.

        Args:
            setting: That.
            most: Clients handed out and not yet merged, at most; None: two for each processor of the cluster.

        Raises:
            ValueError: The experiment's own code cannot be sent to another process, or the cluster has no processor.
        """
        if resource("CPU") < 1:
            raise ValueError("the Ray cluster has no processor for tasks: start a node with --num-cpus of at least 1")
        self._most = most
        try:
            self._setting = ray.put((Home.here(), packed(setting)))
        except RayError:
            raise
        except Exception as error:  # whatever a user's own class answers to being pickled
            raise ValueError(f"the experiment cannot be sent to other machines: {describe_error(error)}") from error
        self._params: tuple[Tensor, Ref] | None = None
        self._submodels: OrderedDict[int, tuple[Submodel, Ref]] = OrderedDict()

    def train(self, params: Params, jobs: Iterable[Job]) -> Iterator[tuple[Client, Upload | str]]:
        """See :data:`fedfibos.round.RunClients`."""
        values = self._put_params(params)

        def submit(job: Job) -> Ref:
            client, submodel = job
            sent = packed(replace(client, data=None))
            return _train.remote([self._setting], values, sent, self._put_submodel(submodel))

        def collect(job: Job, tickets: Sequence[Ref]) -> tuple[Client, Upload | str]:
            client, submodel = job
            reply = _reply(tickets)
            return client, reply if isinstance(reply, str) else replace(unpacked(reply), submodel=submodel)

        return in_window(jobs, submit, collect, _drop, self._window())

    def hits(self, params: Params, trials: Iterable[Trial]) -> Iterator[Tensor]:
        """See :data:`fedfibos.analysis.accuracy.RunTrials`."""
        values = self._put_params(params)

        def submit(trial: Trial) -> Ref:
            return _hits.remote([self._setting], values, packed(trial.indices), self._put_submodel(trial.submodel))

        return in_window(trials, submit, lambda _, tickets: unpacked(_reply(tickets)), _drop, self._window())

    def close(self) -> None:
        """Let the store drop what was put there."""
        self._params = self._setting = None
        self._submodels.clear()

    def _window(self) -> int:
        return self._most or max(2, 2 * resource("CPU"))

    def _put_params(self, params: Params) -> Ref:
        """Their place in the store. An evaluation and the round after it have the same ones."""
        if self._params is None or self._params[0] is not params.flat:
            self._params = params.flat, ray.put(params.flat.numpy())
        return self._params[1]

    def _put_submodel(self, submodel: Submodel) -> Ref:
        """Its place in the store."""
        known = self._submodels.pop(id(submodel), None) or (submodel, ray.put(packed(_bare(submodel))))
        self._submodels[id(submodel)] = known
        if len(self._submodels) > SUBMODELS:
            self._submodels.popitem(last=False)
        return known[1]


def _bare(submodel: Submodel) -> Submodel:
    """The submodel without what it has worked out of itself."""
    return replace(submodel, nested=tuple(map(_bare, submodel.nested)))


def _drop(ticket: Ref) -> None:
    ray.cancel(ticket)


def _reply(tickets: Sequence[Ref]) -> Any:
    """The answer of the first one; those of the next few begin to come over.

    Raises:
        WorkerError: The client failed, its process ended again and again, or no node is left, or no head node.
        ValueError: What the library refuses.
    """
    first = tickets[0]
    try:
        ray.wait(list(tickets[:AHEAD]), num_returns=1, timeout=0)
        while not ray.wait([first], timeout=PATIENCE)[0]:
            if resource("CPU") < 1:
                raise WorkerError("no node with a processor is left in the Ray cluster")
        kind, reply = ray.get(first)
    except RayError as error:
        raise WorkerError(
            f"a worker process ended unexpectedly ({type(error).__name__}: {first_line(error)})"
        ) from error
    if kind == "error":
        line, trace, refused = reply
        failed = (ValueError if refused else WorkerError)(line)
        failed.add_note(trace)
        raise failed
    if kind == "interrupt":
        raise KeyboardInterrupt
    return reply


@ray.remote(num_cpus=1, max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _train(setting: list[Ref], values: Any, sent: Packed, submodel: Packed) -> tuple[str, Any]:
    """Train one client, in a process of the cluster."""

    def work() -> str | Packed:
        client: Client = unpacked(sent)
        known = _settled(setting[0])
        with failing_alike(client):
            upload = known.train(Params(known.model.layout, tensor_on(values)), client, unpacked(submodel))
        if isinstance(upload, str):
            return upload
        return packed(replace(upload, submodel=None, loss=float(upload.loss)))  # type: ignore[arg-type]

    return _told(work)


@ray.remote(num_cpus=1, max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _hits(setting: list[Ref], values: Any, indices: Packed, submodel: Packed) -> tuple[str, Any]:
    """Evaluate one submodel, in a process of the cluster."""

    def work() -> Packed:
        known = _settled(setting[0])
        params = Params(known.model.layout, tensor_on(values))
        with failing_alike(None):
            return packed(known.hits(params, Trial(unpacked(submodel), unpacked(indices))))

    return _told(work)


def _told(work: Callable[[], str | Packed]) -> tuple[str, Any]:
    """What came of it, as a value: of what is raised Ray would make an error of its own."""
    try:
        return "done", work()
    except (WorkerError, ValueError) as error:
        return "error", (str(error), traceback.format_exc(), isinstance(error, ValueError))
    except KeyboardInterrupt:  # raised by a user's code: the signal is ignored
        return "interrupt", None


@lru_cache(maxsize=1)
def _settled(ref: Ref) -> Setting:
    """The setting, in a process that has become like the head's; once a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the head's
    home, pieces = ray.get(ref)
    home.settle()
    try:
        return unpacked(pieces)  # type: ignore[no-any-return]
    except Exception as error:  # a user's own code that is not on this machine
        raise WorkerError(f"{describe_error(error)} (loading the experiment on a node of the Ray cluster)") from error
