"""Which engine trains the clients: that of this machine, or a Ray cluster's, which is imported only here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import get_args

from fedfibos.common.extras import extra
from fedfibos.common.validation import check_name
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.workers import Engine, Executor, executor

MakeExecutor = Callable[[Setting, int, bool], Executor]
"""Starts what trains a setting's clients: the setting, processes on this machine, whether steps are recorded."""


@contextmanager
def clients_on(
    engine: Engine, address: str | None = None, workers: int | None = None, device: str = "cpu"
) -> Iterator[MakeExecutor]:
    """What makes the engine's executors, while it is there.

    Args:
        engine: ``embedded`` or ``ray``.
        address: Of a Ray cluster; see :func:`fedfibos.simulation.simulate`.
        workers: Of a Ray cluster that exists: clients handed out and not yet merged, at most (None: two for each
            processor of the cluster). Of one that is started: its processes (None: one for each processor).
        device: Where clients train.

    Raises:
        ValueError: No such engine, an address of none, or a GPU, which no Ray task of a client has.
        MissingExtraError: Ray is not installed.
    """
    check_name("engine", engine, dict.fromkeys(get_args(Engine)))
    if engine == "embedded":
        check_no_address(address)
        yield executor
        return
    if device != "cpu":
        raise ValueError(
            f"with the engine 'ray' clients train on processors, got device {device!r}: a sweep gives each run a GPU"
        )
    with extra("ray"):
        from fedfibos.simulation.ray_clients import RayClients
        from fedfibos.simulation.ray_cluster import connected

    with connected(address, workers) as started:
        yield lambda setting, _processes, _graphs: RayClients(setting, None if started else workers)


def check_no_address(address: str | None) -> None:
    """Raise ValueError where the embedded engine is given a cluster's address."""
    if address is not None:
        raise ValueError(f"an address is that of a Ray cluster: it needs the engine 'ray', got address {address!r}")
