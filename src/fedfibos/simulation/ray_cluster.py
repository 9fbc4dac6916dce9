"""A Ray cluster for a while: one that exists, or one of this machine alone that is started and stopped."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported

import ray
from ray._private import ray_constants, services

from fedfibos.common.formatting import first_line
from fedfibos.runs.environment import usable_cores
from fedfibos.simulation.failures import WorkerError

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With this off Ray's servers listen on the loopback alone, as they do by default on those two systems."""

PATIENCE = 5.0
"""Seconds to wait for the head node before looking whether it is there."""
HEAD_PATIENCE = 20.0
"""Seconds that a cluster's head node may not answer. Ray would end this process after 60 s, and say nothing of use."""


@contextmanager
def connected(address: str | None = None, processors: int | None = None) -> Iterator[bool]:
    """Connect this process to a Ray cluster; what is started here is stopped here.

    A program that is connected already stays so, and its cluster is used.

    Args:
        address: ``HOST:PORT`` of the cluster's head, or ``auto``: the one with a node here. None: the variable
            RAY_ADDRESS of the environment, and without it a cluster of this machine alone.
        processors: Of a cluster that is started; None: all that this process may use.

    Yields:
        Whether it was started here.

    Raises:
        ValueError: Nothing answers at the address, or no node of the cluster runs on this machine; one line.
        WorkerError: Ray could not be started.
    """
    if ray.is_initialized():
        yield False
        return
    address = address or os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        with _on_loopback():
            try:
                ray.init("local", num_cpus=processors or usable_cores(), include_dashboard=False, **quiet)
            except Exception as error:  # Ray raises it bare where a process of its own is late
                raise WorkerError(f"Ray could not be started on this machine: {first_line(error)}") from error
    else:
        check_address(address)
        try:
            ray.init(address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            hint = (
                "" if "RAY_AUTH_MODE" in os.environ else "; a cluster that asks for a token needs RAY_AUTH_MODE=token"
            )
            raise ValueError(f"no Ray cluster could be joined at {address!r}: {first_line(error)}{hint}") from None
    try:
        yield address is None
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Refuse an address at once where nothing answers: Ray itself would try for a minute.

    Raises:
        ValueError: In one line.
    """
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdecimal():
        raise ValueError(f"a Ray cluster's address must be HOST:PORT of its head, or 'auto', got {address!r}")
    try:
        _call(address)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"no Ray cluster answers at {address!r} ({why}): 'ray start --head' prints the address of its cluster"
        ) from None  # else a failure of this machine, for the exit code
    try:
        _call(f"{services.resolve_ip_for_localhost(host)}:{port}")  # where Ray itself calls it
    except OSError:
        raise ValueError(
            f"the Ray cluster at {address!r} answers on this machine's loopback alone, where Ray does not call it: "
            f"set {LOOPBACK}=0 for this command, as for the cluster"
        ) from None


def _call(address: str) -> None:
    """Raise OSError where nothing answers there."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def check_head() -> None:
    """Look whether the cluster's head node answers, for a while where it does not.

    What Ray asks of a head node that is gone waits, and nothing can end that wait but the end of the process.

    Raises:
        WorkerError: It is gone.
    """
    address, began = ray.get_runtime_context().gcs_address, time.monotonic()
    while True:
        try:
            return _call(address)
        except OSError as error:
            if time.monotonic() - began > HEAD_PATIENCE:
                raise WorkerError(
                    f"the head node of the Ray cluster at {address} has not answered for {HEAD_PATIENCE:g} s "
                    f"({error.strerror or error}): the checkpoint is kept, resume on another cluster or without one"
                ) from None
        time.sleep(1)


def resource(name: str) -> int:
    """How much of ``CPU`` or ``GPU`` the nodes have that are alive, whoever uses it now.

    Raises:
        WorkerError: The cluster's head node is gone.
    """
    return int(sum(node["Resources"].get(name, 0) for node in _nodes() if node["Alive"]))


def largest(name: str) -> int:
    """How much of it the node has that has most."""
    return max((int(node["Resources"].get(name, 0)) for node in _nodes() if node["Alive"]), default=0)


def _nodes() -> list[dict[str, Any]]:
    """What the head node says of the nodes. It may die while it is asked: only another thread waits for it then."""
    answer: Future[list[dict[str, Any]]] = Future()

    def ask() -> None:
        try:
            answer.set_result(ray.nodes())
        except BaseException as error:
            answer.set_exception(error)

    check_head()
    threading.Thread(target=ask, daemon=True).start()
    while True:
        try:
            return answer.result(timeout=PATIENCE)
        except TimeoutError:
            if answer.done():  # it is Ray's own
                raise
            check_head()


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Start Ray's processes so that nobody else on the network reaches them, with time to start on a busy machine."""
    wanted = {LOOPBACK: "0", "RAY_worker_niceness": "0", "RAY_agent_register_timeout_ms": "120000"}
    before, enabled = {name: os.environ.get(name) for name in wanted}, ray_constants.ENABLE_RAY_CLUSTER
    os.environ.update(wanted)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
