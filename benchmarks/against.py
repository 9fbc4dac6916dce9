"""Another state of the library against this one, in turn: ``python benchmarks/against.py OTHER [--repeats N]``.

OTHER is a checkout of another commit (``git worktree add``). Each side is a process of its own with one torch thread.
In every turn each trains a round by the bare loop and by FedFIbOS; the ratio of the two counts.
Results go to ``results/bench/against.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engine import METHODS, bare_rounds, engine_rounds, summary
from workloads import WORKLOADS, stopwatch

from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.runs.environment import describe

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "results" / "bench" / "against.json"
MEASURED = ("mlp_11m_1_step",)
"""The row that passes over the parameters slow down most."""


def serve(workload: str) -> None:
    """One side: a turn for each line that comes in."""
    torch.set_num_threads(1)
    keep_freed_memory()
    sides = {"bare": bare_rounds(WORKLOADS[workload])}
    sides["fedfibos"], _ = engine_rounds(WORKLOADS[workload], METHODS["fedfibos"])
    turn(sides)  # from the second round on every coordinate has been observed
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(turn(sides)), flush=True)


def turn(sides: dict[str, Callable[[], None]]) -> dict[str, dict[str, float]]:
    """Seconds of a round of each."""
    seconds = {}
    for name, run in sides.items():
        watch = stopwatch()
        run()
        seconds[name] = watch()
    return seconds


def turns(checkouts: dict[str, Path], workload: str, repeats: int) -> dict[str, Any]:
    """Both sides, one turn after another."""
    served = {name: _started(checkout, workload) for name, checkout in checkouts.items()}
    times: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in served}
    try:
        for _ in range(repeats):
            for name, process in served.items():
                for side, sample in json.loads(_asked(process)).items():
                    times[name].setdefault(side, []).append(sample)
    finally:
        for process in served.values():
            process.kill()
            process.wait()
    return {name: summary(of, "bare") for name, of in times.items()}


def _started(checkout: Path, workload: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, ".", "--serve", workload],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        sys.exit(f"against: {checkout} cannot run {workload}")
    return process


def _asked(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("turn\n")
    process.stdin.flush()
    return process.stdout.readline()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # one side, in this process
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    commit = subprocess.run(
        ["git", "-C", str(arguments.other), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    checkouts = {"before": arguments.other.resolve(), "after": ROOT}
    rows = {workload: turns(checkouts, workload, arguments.repeats) for workload in MEASURED}
    made = describe("cpu", ["benchmarks/against.py", commit[:12], "--repeats", str(arguments.repeats)])
    content = {"made": made, "load": os.getloadavg()[1], "repeats": arguments.repeats, "before": commit, "rows": rows}
    RESULT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
