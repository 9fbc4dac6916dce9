"""Measure all that docs/explanation/performance.md shows: ``python benchmarks/bench.py [piece ...] [--repeats N]``.

Every comparison runs its sides in turn in one process, with one torch thread. Each measurement is a process of its
own; results go to ``results/bench/<piece>.json`` with the command, versions and hardware.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from engine import compiled, engine_against_bare, layouts, precisions, summary, workers
from floors import passes
from halves import disagreement
from homes import measured, server_of_clients
from masked import masked_round
from passes import passes as passes_of_a_client
from peers import peer_times
from population import REGISTERED, registered
from selection import selection
from upload_checks import upload_checks
from workloads import LAYOUTS, WORKLOADS, Workload

from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.runs.environment import describe

RESULTS = Path(__file__).parent.parent / "results" / "bench"


def peer(name: str, workload: str, repeats: int) -> dict[str, Any]:
    """A peer's rounds against the bare loop's, or why there are none."""
    times = peer_times(name, workload, repeats)
    if isinstance(times, str):
        return {"skipped": times}
    if name == "flower":  # its clients run in other processes: only the wall clock counts
        times = {side: [{"wall": sample["wall"]} for sample in samples] for side, samples in times.items()}
    return summary(times, "bare")


def default_allocator(workload: str, repeats: int) -> dict[str, Any]:
    """The engine against the bare loop, with the C library's own settings."""
    return engine_against_bare(WORKLOADS[workload], repeats)


def kept_memory(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Measure with freed memory kept, as the command line does."""
    if not keep_freed_memory():
        return {"skipped": "freed memory can't be kept: another C library, or settings in the environment"}
    return measure(*arguments)


def compile_or_say(workload: Workload, repeats: int) -> dict[str, Any]:
    """``torch.compile`` against eager, where there is a C++ compiler."""
    if shutil.which("g++") is None:
        return {"skipped": "torch.compile needs a C++ compiler on a CPU, there is none"}
    return kept_memory(compiled, workload, repeats)


PIECES: dict[str, dict[str, Callable[[int], Any]]] = {
    "engine": {
        name: lambda repeats, w=workload: kept_memory(engine_against_bare, w, repeats)
        for name, workload in WORKLOADS.items()
    },
    "floors": {
        name: lambda repeats, n=name: kept_memory(passes, WORKLOADS[n], repeats) for name in ("resnet18", "mlp_11m")
    },
    "passes": {
        name: lambda repeats, n=name: kept_memory(passes_of_a_client, WORKLOADS[n], repeats)
        for name in ("mlp_11m_1_step", "mlp_11m")
    },
    "engine_default_allocator": {
        name: lambda repeats, n=name: default_allocator(n, repeats) for name in ("mlp_11m", "mlp_11m_1_step")
    },
    "pfl": {name: lambda repeats, n=name: peer("pfl", n, repeats) for name in WORKLOADS},
    "flower": {
        name: lambda repeats, n=name: peer("flower", n, repeats) for name in ("tiny_mlp", "mlp_11m_1_step", "mlp_11m")
    },
    "precision": {
        name: lambda repeats, n=name: kept_memory(precisions, WORKLOADS[n], repeats)
        for name in ("resnet8", "resnet18", "mlp_11m")
    },
    "layouts": {name: lambda repeats, n=name: kept_memory(layouts, LAYOUTS[n], repeats) for name in LAYOUTS},
    "compile": {name: lambda repeats, n=name: compile_or_say(WORKLOADS[n], repeats) for name in ("cnn", "mlp_11m")},
    "masked": {"resnet18": lambda repeats: kept_memory(masked_round, repeats)},
    "workers": {"cnn": lambda repeats: kept_memory(workers, replace(WORKLOADS["cnn"], clients=10), repeats)},
    "upload_checks": {"11.2M parameters": lambda repeats: kept_memory(upload_checks, repeats)},
    "selection": {"11.2M scores": lambda repeats: kept_memory(selection, repeats)},
    "population": {f"{n}": lambda repeats, n=n: registered(n, repeats) for n in REGISTERED},
    "homes": {
        "disk": lambda repeats: measured("disk", 40, 80),
        "disk, two bytes a score": lambda repeats: measured("disk", 200, 220, 2),
        "client": lambda repeats: server_of_clients(200),
        "memory": lambda repeats: measured("memory", 8, 8),
    },
    "halves": {"CIFAR-10, LeNet, algorithm1": lambda repeats: disagreement()},
}


def main() -> None:
    """Run the pieces asked for, one measurement after another, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pieces", nargs="*", metavar="piece", help=f"of {', '.join(PIECES)}; default: all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a row of one piece, in this process
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if unknown := [piece for piece in arguments.pieces if piece not in PIECES]:
        parser.error(f"piece must be one of {', '.join(PIECES)}, got {unknown[0]!r}")
    if arguments.one is not None:
        print(json.dumps(PIECES[arguments.pieces[0]][arguments.one](arguments.repeats)))
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    for piece in arguments.pieces or PIECES:
        rows = {}
        for row in PIECES[piece]:
            print(f"{piece}: {row}", flush=True)
            command = [sys.executable, __file__, piece, "--one", row, "--repeats", str(arguments.repeats)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"bench: {piece}: {row} failed:\n{done.stderr}")
            rows[row] = json.loads(done.stdout.splitlines()[-1])
        made = describe("cpu", ["benchmarks/bench.py", piece, "--repeats", str(arguments.repeats)])
        content = {"made": made, "load": os.getloadavg()[1], "repeats": arguments.repeats, "rows": rows}
        (RESULTS / f"{piece}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
