"""Prometheus metrics of a fleet's server, at a port of its own: what the last rounds came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedfibos.common.extras import extra
from fedfibos.runs.following import kind_of
from fedfibos.trackers.numbers import numbers_in

Show = Callable[[Mapping[str, Any], int], None]
"""Called with a line of ``rounds.jsonl`` and the number of connected clients."""


@contextmanager
def shown_metrics(port: int | None, host: str, rounds: int) -> Iterator[Show]:
    """Serve metrics while a run goes on.

    ``fedfibos_round``, ``fedfibos_rounds``, ``fedfibos_connected``; ``fedfibos_value{name="loss"}`` and the other
    numbers of a round; ``fedfibos_participants_total``, ``fedfibos_dropped_total`` and
    ``fedfibos_rejected_total{kind="..."}``.

    Args:
        port: Where; None: nowhere.
        host: The address to listen at.
        rounds: Of the run in all.

    Raises:
        MissingExtraError: prometheus_client is not installed.
        ValueError: Nothing can listen there.
    """
    if port is None:
        yield lambda record, connected: None
        return
    with extra("prometheus"):
        import prometheus_client as prometheus
    registry = prometheus.CollectorRegistry()
    done = prometheus.Gauge("fedfibos_round", "Finished rounds.", registry=registry)
    total = prometheus.Gauge("fedfibos_rounds", "Rounds in all.", registry=registry)
    there = prometheus.Gauge("fedfibos_connected", "Clients connected in the last round.", registry=registry)
    value = prometheus.Gauge("fedfibos_value", "A number of the last round that has it.", ["name"], registry=registry)
    took = prometheus.Counter("fedfibos_participants", "Clients that were sent a model.", registry=registry)
    dropped = prometheus.Counter("fedfibos_dropped", "Clients beyond the cohort, not used.", registry=registry)
    rejected = prometheus.Counter("fedfibos_rejected", "Uploads that did not count.", ["kind"], registry=registry)
    total.set(rounds)

    def show(record: Mapping[str, Any], connected: int) -> None:
        done.set(record["round"])
        there.set(connected)
        took.inc(len(record["participants"]))
        dropped.inc(len(record.get("dropped", ())))
        for reason in record["rejected"].values():
            rejected.labels(kind_of(reason)).inc()
        for name, number in numbers_in(record).items():
            value.labels(name).set(number)

    try:
        server, thread = prometheus.start_http_server(port, host, registry)
    except OSError as error:
        raise ValueError(
            f"federation.metrics_port: nothing can listen at {host}:{port}: {error.strerror or error}"
        ) from None
    try:
        yield show
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
