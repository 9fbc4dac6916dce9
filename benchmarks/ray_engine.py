"""Rounds on a Ray cluster of this machine against the embedded engine, and what larger clusters would be bound by.

``python benchmarks/ray_engine.py [--repeats N]`` writes ``results/bench/ray.json``; with ``--pieces`` its rounds stay,
and what the head does is measured again. Both engines have two processes and take turns, round by round. The model of
larger clusters is arithmetic on what is measured here, in processor time, and on the link that is assumed; no such
cluster was run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from workloads import CAPACITIES, LR, WORKLOADS, Workload

from fedfibos.aggregate import Sums
from fedfibos.data.images import TensorData
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.runs.environment import describe
from fedfibos.simulation.cluster import clients_on
from fedfibos.simulation.pool import WorkerPool
from fedfibos.simulation.setting import Setting
from fedfibos.soundness import averageable, look_at
from fedfibos.submodel import Submodel, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Upload

RESULT = Path(__file__).parent.parent / "results" / "bench" / "ray.json"
WORKERS = 2
ROUNDS = {
    "tiny_mlp": WORKLOADS["tiny_mlp"],
    "resnet18": replace(WORKLOADS["resnet18"], clients=2, examples=20),
    "mlp_11m": replace(WORKLOADS["mlp_11m"], clients=2, examples=160),
}
NODES, CORES, LINKS = (4, 16, 100), 32, {"10 Gb/s": 1.25e9, "100 Gb/s": 12.5e9}
STEPS = 125
"""Of a client in the model of larger clusters: five epochs of 500 examples in batches of 20."""


def setting_of(workload: Workload) -> Setting:
    """Clients whose data are made where they train."""
    model = model_of(workload.module())

    def data(client: int) -> TensorData:
        return TensorData(*workload.data(client))

    return Setting(FedFIbOS(), model, data, data(0), None, 100)


def rounds_of(workload: Workload, setting: Setting, engine: Any) -> Callable[[], float]:
    """A function that runs the next round and gives its seconds."""
    local = LocalTraining(epochs=1, batch_size=workload.batch, lr=LR)
    params = setting.model.initial_params()
    state, t = setting.method.init(params), 0

    def run() -> float:
        nonlocal state, params, t
        cohort = [Client(n, CAPACITIES[n % 5], t, 0, local) for n in range(workload.clients)]
        started = time.perf_counter()
        state, params, _ = federated_round(setting.method, setting.model, state, params, cohort, engine.train)
        t += 1
        return time.perf_counter() - started

    return run


def against_embedded(workload: Workload, make: Any, pool: WorkerPool, repeats: int) -> dict[str, Any]:
    """Seconds of a round of each engine, and the median of the ratios of rounds that followed each other."""
    setting = setting_of(workload)
    clients = make(setting, WORKERS, False)
    sides = {"embedded": rounds_of(workload, setting, pool), "ray": rounds_of(workload, setting, clients)}
    for run in sides.values():
        run()  # starts processes, derives axes
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, run in sides.items():
            times[side].append(run())
    clients.close()
    ratios = [there / here for there, here in zip(times["ray"], times["embedded"], strict=True)]
    return {
        "clients": workload.clients,
        "steps": workload.steps,
        "parameters": setting.model.layout.size,
        "seconds": {side: round(statistics.median(of), 4) for side, of in times.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def shortest(work: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest call; of this process's processor, which other load on the machine moves less."""
    times = []
    for _ in range(repeats):
        started = clock()
        work()
        times.append(clock() - started)
    return min(times)


def upload_of(size: int, maskable: int, of: Submodel) -> Upload:
    """A whole client's upload, with a statistic."""
    delta = torch.randn(size, generator=torch.Generator().manual_seed(0))
    return Upload(of, delta, 1.0, 1, torch.rand(maskable, generator=torch.Generator().manual_seed(1)))


def head_pieces() -> dict[str, float]:
    """Processor seconds of what is done for a client of ResNet-18: at the head, and a local step elsewhere."""
    workload = WORKLOADS["resnet18"]
    setting = setting_of(workload)
    model, params = setting.model, setting.model.initial_params()
    client = Client(0, 1.0, 0, 0, LocalTraining(epochs=1, batch_size=workload.batch, lr=LR))
    upload = upload_of(model.layout.size, model.layout.num_maskable, full(model.layout))
    sums, most = Sums(model.layout), averageable([client])

    def merge() -> None:
        look_at(upload, most)
        sums.add(upload)

    return {
        "params_bytes": 4 * model.layout.size,
        "merge": shortest(merge),
        "step": shortest(lambda: setting.train(params, client, full(model.layout)), 2) / workload.steps,
    }


def store_pieces() -> dict[str, float]:
    """Seconds of an upload of ResNet-18 into the object store and out of it, and of a task that does nothing."""
    import ray

    from fedfibos.simulation.ray_values import packed, unpacked

    layout = model_of(WORKLOADS["resnet18"].module()).layout
    sent = packed(replace(upload_of(layout.size, layout.num_maskable, full(layout)), submodel=None))  # type: ignore[arg-type]
    ref = ray.put(sent)
    nothing = ray.remote(num_cpus=1)(lambda: None)
    ray.get(nothing.remote())
    clock = time.perf_counter
    return {
        "upload_bytes": sum(piece.nbytes for piece in sent[1]),
        "put": shortest(lambda: ray.put(sent), 5, clock),
        "get": shortest(lambda: unpacked(ray.get(ref)), 5, clock),
        "task": shortest(lambda: ray.get(nothing.remote()), 50, clock),
    }


def larger(measured: dict[str, float]) -> list[dict[str, Any]]:
    """Seconds of a round of one ResNet-18 client a processor, and what most of them go into.

    Clients train at once. Meanwhile the head sends parameters to each node, receives uploads over one link and merges
    them; receiving the next few goes on beside merging, so the slower of the two counts.
    """
    rows = []
    for link, speed in LINKS.items():
        for nodes in NODES:
            clients = nodes * CORES
            parts = {
                "training": STEPS * measured["step"],
                "parameters out": nodes * measured["params_bytes"] / speed,
                "uploads in": clients * measured["upload_bytes"] / speed,
                "merging": clients * (measured["merge"] + measured["get"]),
                "handing out": clients * measured["task"],
            }
            head = parts["parameters out"] + max(parts["uploads in"], parts["merging"]) + parts["handing out"]
            rows.append(
                {
                    "nodes": nodes,
                    "clients": clients,
                    "link": link,
                    "seconds": {name: round(seconds, 2) for name, seconds in parts.items()},
                    "head": round(head, 1),
                    "bound_by": max(parts, key=lambda name: parts[name]),
                    "training_share": round(parts["training"] / (parts["training"] + head), 2),
                }
            )
    return rows


def rounds(repeats: int) -> dict[str, Any]:
    """Every workload's rounds on both engines."""
    pools = {name: WorkerPool(setting_of(workload), WORKERS) for name, workload in ROUNDS.items()}  # before Ray
    rows = {}
    with clients_on("ray", None, WORKERS) as make:
        for name, workload in ROUNDS.items():
            rows[name] = against_embedded(workload, make, pools[name], repeats)
            print(name, json.dumps(rows[name]), flush=True)
        measured = store_pieces()
    for pool in pools.values():
        pool.close()
    made = describe("cpu", ["benchmarks/ray_engine.py", "--repeats", str(repeats)])
    return {
        "made": made,
        "load": os.getloadavg()[1],
        "repeats": repeats,
        "workers": WORKERS,
        "rows": rows,
        "pieces": measured,
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pieces", action="store_true", help="measure the head alone again")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    content = json.loads(RESULT.read_text()) if arguments.pieces else rounds(arguments.repeats)
    measured = {name: round(value, 6) for name, value in (content["pieces"] | head_pieces()).items()}
    content |= {"pieces": measured, "larger": larger(measured)}
    RESULT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
