"""The experiment that a command is given, with what its overrides leave behind said aloud."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedfibos.cli.terminal import warn
from fedfibos.config.experiment import Experiment, load_experiment
from fedfibos.config.left_behind import left_behind


def chosen_experiment(path: Path, overrides: Sequence[str] | None) -> Experiment:
    """See :func:`fedfibos.load_experiment`; a line on standard error for settings of the file that are dropped."""
    given = list(overrides or ())
    experiment = load_experiment(path, given)
    for line in left_behind(path, given, experiment) if given else ():
        warn(line)
    return experiment
