"""Run a study: what is finished is left alone, what was broken off goes on, what fails is reported.

Several processes may run one study into one folder: each passes over the runs that another is at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfibos.common.user_code import describe_error
from fedfibos.config.experiment import to_toml
from fedfibos.config.study import PlannedRun, Study
from fedfibos.round import NoUploadError
from fedfibos.runs.files import CONFIG, FINAL
from fedfibos.runs.final import read_final
from fedfibos.runs.made import latest_environment
from fedfibos.runs.own_code import changed_code, own_code
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import BusyError
from fedfibos.runs.stored import experiment_of, is_stored
from fedfibos.simulation import Interrupted, WorkerError, simulate

OnRound = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        run: The run.
        state: ``done`` now; ``finished`` before; ``busy``, another process is at it; ``failed``.
        final: Content of ``final.json``; None where the run is not finished.
        reason: Why it failed, in one line.
        error: What failed.
    """

    run: PlannedRun
    state: str
    final: Mapping[str, Any] | None = None
    reason: str = ""
    error: Exception | None = None


class SweepProgress:
    """What a sweep reports to; this one is silent."""

    def start(self, run: PlannedRun, resumed: bool) -> OnRound:
        """A run begins or goes on; what is returned is called with every line of its ``rounds.jsonl``."""
        return lambda record: None

    def warn(self, text: str) -> None:
        """A warning of the current run, in one line."""

    def finish(self, outcome: Outcome) -> None:
        """A run is over, or was before."""


def run_study(
    study: Study,
    out: Path,
    progress: SweepProgress,
    *,
    workers: int | None = None,
    device: str = "cpu",
    data_dir: Path | None = None,
) -> list[Outcome]:
    """Run what is not finished: new runs from the start, broken ones from their last checkpoint.

    A run that fails is reported and the next one begins; so is one that another process is at.

    Args:
        study: The runs.
        out: Folder of the run directories.
        progress: Told of every run.
        workers: As of :func:`fedfibos.simulation.simulate`.
        device: As there.
        data_dir: As there.

    Raises:
        Interrupted: After Ctrl-C, once the current run has written a checkpoint; the same call goes on from there.
    """
    outcomes = []
    options = {"workers": workers, "device": device, "data_dir": data_dir}
    for run in study.runs:
        outcome = attempt(run, out / run.folder, progress, options)
        progress.finish(outcome)
        outcomes.append(outcome)
    return outcomes


def attempt(run: PlannedRun, folder: Path, progress: SweepProgress, options: Mapping[str, Any]) -> Outcome:
    """What becomes of a run, whatever goes wrong in it.

    Raises:
        Interrupted: After Ctrl-C; BrokenPipeError, where the reader of what is printed is gone.
    """
    try:
        return _outcome(run, folder, progress, options)
    except (Interrupted, BrokenPipeError):
        raise
    except BusyError:
        return Outcome(run, "busy")
    except (RecordError, NoUploadError, WorkerError, ValueError, OSError) as error:
        return Outcome(run, "failed", reason=_reason(error), error=error)
    except Exception as error:  # what a user's own model raises
        return Outcome(run, "failed", reason=describe_error(error), error=error)


def _reason(error: Exception) -> str:
    """What went wrong, in one line; a sweep has no ``--overwrite``, which a run directory speaks of."""
    text = " ".join(str(error).split())
    return text.replace("pass --overwrite to run anew", "remove this folder to run it anew")


def _outcome(run: PlannedRun, folder: Path, progress: SweepProgress, options: Mapping[str, Any]) -> Outcome:
    """The results of a run: those that are there, or else run it, from its last checkpoint where there is one."""
    final = _finished(run, folder)
    if final is not None:
        return Outcome(run, "finished", final)
    on_round = progress.start(run, resumed=(folder / CONFIG).exists())
    final = simulate(run.experiment, folder, resume=True, on_round=on_round, on_warning=progress.warn, **options)
    return Outcome(run, "done", final)


def _finished(run: PlannedRun, folder: Path) -> Mapping[str, Any] | None:
    """The results of a finished run of this very experiment, if it is there.

    Directories with another experiment are left to the engine, which refuses them and names the difference.

    Raises:
        RecordError: It was run by another version of the user's own code: no seed of the same experiment.
    """
    if not is_stored(folder / FINAL) or to_toml(experiment_of(folder)) != to_toml(run.experiment):
        return None
    with suppress(ValueError):  # the code may be gone: what it gave is there
        if changed := changed_code(latest_environment(folder), own_code(to_toml(run.experiment))):
            raise RecordError(
                f"{folder} is finished, by another version of {changed[0]}: remove it to run it again, or choose "
                "another --out"
            )
    return read_final(folder / FINAL)
