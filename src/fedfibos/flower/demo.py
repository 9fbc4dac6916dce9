"""``fedfibos flower demo``: a SuperLink and three SuperNodes of different capacity, here, for a few rounds."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfibos.flower.deployment import Deployment
from fedfibos.flower.launch import Processes, free_port
from fedfibos.flower.meter import Meter
from fedfibos.flower.new import new_app

CAPACITIES = (1.0, 0.25, 0.0625)
BYTES_PER_VALUE = 4


@dataclass(frozen=True)
class Traffic:
    """Bytes of one client in one run.

    Attributes:
        client: Its id.
        capacity: γ.
        payload_down: Of the payloads to it.
        payload_up: Of the payloads from it.
        connection_down: On its connection, from the SuperLink: payloads, the app, Flower's polling, HTTP.
        connection_up: On its connection, to the SuperLink.
    """

    client: int
    capacity: float
    payload_down: int
    payload_up: int
    connection_down: int
    connection_up: int


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        rounds: Lines of its ``rounds.jsonl``.
        final: Its ``final.json``.
        traffic: Of every client.
        full: Bytes of the full model's parameters: what FedAvg sends a client, each way, in a round.
    """

    rounds: list[dict[str, Any]]
    final: dict[str, Any]
    traffic: list[Traffic]
    full: int


@dataclass(frozen=True)
class Fleet:
    """Three SuperNodes with a meter each, and the app they run."""

    deployment: Deployment
    meters: list[Meter]
    app: Path

    def run(
        self,
        name: str,
        config: dict[str, Any],
        on_round: Callable[[dict[str, Any]], None] = lambda record: None,
        limit: float = 900.0,
    ) -> Outcome:
        """Run the app to its end.

        Raises:
            LaunchError: A process ended, or the run failed.
            TimeoutError: It took longer than ``limit`` seconds.
        """
        processes, out = self.deployment.processes, self.app.parent / name
        before = [(meter.down, meter.up) for meter in self.meters]
        seen = 0
        end = time.monotonic() + limit
        self.deployment.start_run(self.app, {"run-dir": str(out), **config}, name)
        while not (out / "final.json").exists():
            if time.monotonic() > end:
                raise TimeoutError(f"the run took longer than {limit:g} s (log: {processes.log(name)})")
            processes.check(*(n for n in processes.running if n.startswith(("superlink", "gateway", "supernode"))))
            if processes.running[name].poll() is not None:
                time.sleep(1.0)
                if not (out / "final.json").exists():
                    processes.check(name)
            for record in _lines(out)[seen:]:
                on_round(record)
                seen += 1
            time.sleep(0.3)
        rounds = _lines(out)
        for record in rounds[seen:]:
            on_round(record)
        processes.stop(name)
        traffic = []
        for client, (capacity, meter, (down, up)) in enumerate(zip(CAPACITIES, self.meters, before, strict=True)):
            sent = [record["bytes_by_client"].get(str(client), {"down": 0, "up": 0}) for record in rounds]
            payloads = (sum(ways["down"] for ways in sent), sum(ways["up"] for ways in sent))
            traffic.append(Traffic(client, capacity, *payloads, meter.down - down, meter.up - up))
        meta = json.loads(next((out / "checkpoint").glob("round-*/meta.json")).read_text())
        final = json.loads((out / "final.json").read_text())
        return Outcome(rounds, final, traffic, BYTES_PER_VALUE * meta["size"])


@contextlib.contextmanager
def fleet(folder: Path, node: dict[str, Any] | None = None, *, secure: bool = False) -> Iterator[Fleet]:
    """The demo's processes, running; all of them have ended afterwards.

    Args:
        folder: An empty folder for the app, the logs and the runs.
        node: More of every node's config.
        secure: With TLS and a key for each SuperNode, which come in through the gateway.
    """
    new_app(folder / "app")
    with contextlib.ExitStack() as stack:
        processes = stack.enter_context(Processes(folder))
        deployment = Deployment.secure(processes) if secure else Deployment(processes, free_port())
        deployment.start_link()
        if secure:
            deployment.start_gateway()
        meters = [stack.enter_context(Meter(deployment.entrance or deployment.port)) for _ in CAPACITIES]
        for client, (capacity, meter) in enumerate(zip(CAPACITIES, meters, strict=True)):
            config = {"client-id": client, "capacity": capacity, **(node or {})}
            name = f"supernode-{client}"
            key = deployment.register(name) if secure else ()
            deployment.start_node(name, config, *key, port=meter.port)
        yield Fleet(deployment, meters, folder / "app")


def _lines(run: Path) -> list[dict[str, Any]]:
    """The whole lines of ``rounds.jsonl`` so far."""
    path = run / "rounds.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
