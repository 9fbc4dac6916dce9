"""A study's runs as tasks of a Ray cluster. Their directories must lie where the head and all nodes read and write."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, TaskCancelledError

from fedfibos.common.formatting import count_of, first_line
from fedfibos.config.study import Study
from fedfibos.simulation.failures import WorkerError
from fedfibos.simulation.interrupts import Interrupted, StudyInterrupted, deferred_interrupt
from fedfibos.simulation.ray_clients import RETRIES
from fedfibos.simulation.ray_cluster import check_head, connected, largest
from fedfibos.simulation.ray_home import Home
from fedfibos.simulation.ray_values import Packed, packed, unpacked
from fedfibos.simulation.sweep import Outcome, SweepProgress, attempt


def run_study_on_ray(
    study: Study,
    out: Path,
    progress: SweepProgress,
    *,
    workers: int | None = None,
    device: str = "cpu",
    data_dir: Path | None = None,
    address: str | None = None,
) -> list[Outcome]:
    """Run what is not finished, as many runs at once as the cluster has room for; see :func:`.sweep.run_study`.

    Args:
        study: The runs.
        out: Folder of the run directories, on a file system that head and nodes share.
        progress: Told of every run that is over, in the order in which they are.
        workers: Processors of one node for each run, which trains in as many processes; None: 1.
        device: ``cuda``: each run has a GPU.
        data_dir: The data folder, as the nodes see it.
        address: As of :func:`fedfibos.simulation.simulate`.

    Returns:
        What became of each run, in the study's order.

    Raises:
        StudyInterrupted: After Ctrl-C, once the runs under way have written a checkpoint; the same call goes on.
        ValueError: No node is large enough for a run, or the cluster cannot be joined.
        WorkerError: The cluster's head node is gone.
    """
    folder = data_dir or os.environ.get("FEDFIBOS_DATA")
    options = {"workers": workers or 1, "device": device, "data_dir": folder and Path(folder).absolute()}
    needs = {"num_cpus": workers or 1, "num_gpus": int(device != "cpu")}
    with connected(address), deferred_interrupt() as interrupted:
        _check_room(needs)
        home, waiting, outcomes = Home.here(), dict[Any, int](), dict[int, Outcome]()
        for number, run in enumerate(study.runs):
            sent = packed((run, (out / run.folder).absolute(), options))
            waiting[_attempt.options(**needs).remote(home, sent)] = number
        stopped, stopping = 0, False
        while waiting:
            check_head()
            for ref in ray.wait(list(waiting), timeout=1)[0]:
                number = waiting.pop(ref)
                answer, warnings = _answer(ref)
                for text in warnings:
                    progress.warn(text)
                if isinstance(answer, Outcome):
                    outcomes[number] = replace(answer, run=study.runs[number])
                    progress.finish(outcomes[number])
                else:
                    stopped += answer == STOPPED
            if interrupted.is_set() and not stopping:
                stopping = True
                for ref in waiting:
                    ray.cancel(ref)
        if stopping and len(outcomes) < len(study.runs):
            raise StudyInterrupted(stopped)
    return [outcomes[number] for number in range(len(study.runs))]


def _check_room(needs: Mapping[str, int]) -> None:
    """Raise ValueError where no node is large enough for a run: it would wait for ever."""
    for name, wanted, what in (("CPU", needs["num_cpus"], "processor"), ("GPU", needs["num_gpus"], "GPU")):
        if (most := largest(name)) < wanted:
            raise ValueError(
                f"each run needs {count_of(wanted, what)} of one node, the Ray cluster's largest node has {most}"
            )


STOPPED, NOT_BEGUN = "stopped", "not begun"


class _Warnings(SweepProgress):
    """Keeps what a run warns of."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, text: str) -> None:
        """See :class:`fedfibos.simulation.sweep.SweepProgress`."""
        self.lines.append(text)


def _answer(ref: Any) -> tuple[Outcome | str, list[str]]:
    """What came of a run, and its warnings."""
    try:
        answer, warnings = unpacked(ray.get(ref))
        return answer, warnings
    except TaskCancelledError:
        return NOT_BEGUN, []
    except RayError as error:
        why = f"its process ended unexpectedly ({type(error).__name__}: {first_line(error)})"
        return Outcome(None, "failed", reason=why, error=WorkerError(why)), []  # type: ignore[arg-type]


@ray.remote(max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _attempt(home: Home, sent: Packed) -> Packed:
    """One run, in a process of the cluster; of a node that died it goes on elsewhere, from its last checkpoint."""
    run, folder, options = unpacked(sent)
    told = _Warnings()
    try:
        home.settle()
        answer: Outcome | str = _sendable(attempt(run, folder, told, options))
    except Interrupted:
        answer = STOPPED
    except WorkerError as error:
        answer = Outcome(run, "failed", reason=str(error), error=error)
    return packed((answer, told.lines))


def _sendable(outcome: Outcome) -> Outcome:
    """The outcome with an error that another process can read, where that of a user's own code is none."""
    try:
        pickle.loads(pickle.dumps(outcome.error))
    except Exception:
        return replace(outcome, error=WorkerError(outcome.reason))
    return outcome
