"""What a tracker is, and the trackers of one run."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from fedfibos.common.extras import extra
from fedfibos.common.formatting import first_line
from fedfibos.trackers.numbers import numbers_in, settings_in

Name = Literal["tensorboard", "wandb", "mlflow", "trackio"]

PACKAGES: Mapping[str, str] = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
}
"""Tracker -> the package that it needs, which is the name of the extra that brings it."""


class Tracker(Protocol):
    """One run in one tracker."""

    def log(self, round_number: int, numbers: Mapping[str, float]) -> None:
        """The numbers of a round."""

    def close(self) -> None:
        """The run is over, or interrupted: write what is left."""


Log = Callable[[Mapping[str, Any]], None]
"""Called with every line of ``rounds.jsonl``."""


def check_installed(names: Sequence[str]) -> None:
    """Raise MissingExtraError, in one line with the command, where a tracker's package is not installed."""
    for name in names:
        with extra(name):
            import_module(PACKAGES[name])


@contextmanager
def tracked(
    names: Sequence[str], run: Path, config: str, finished: int, warn: Callable[[str], None] = lambda text: None
) -> Iterator[Log]:
    """The trackers of a run while it goes on. One that fails is left behind with a warning; the run goes on.

    Args:
        names: Which; see :data:`Name`.
        run: The run directory. What a tracker keeps on this machine lies in it, where its library lets it.
        config: The experiment, as the text of a TOML file.
        finished: Rounds that the run goes on after: a tracker's later ones are replaced where it can.
        warn: Called with what went wrong, in one line.

    Raises:
        MissingExtraError: A tracker's package is not installed.
    """
    check_installed(names)
    settings, trackers = settings_in(tomllib.loads(config)), dict[str, Tracker]()

    def guarded(name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # a tracker's library may raise anything; the run is worth more than its curves
            trackers.pop(name, None)
            warn(f"run.log: {name} takes no more rounds: {type(error).__name__}: {first_line(error)}")

    def start(name: str) -> None:
        trackers[name] = import_module(f"fedfibos.trackers.{name}").start(run, settings, finished)

    def log(record: Mapping[str, Any]) -> None:
        if trackers:
            numbers = numbers_in(record)
            for name, tracker in list(trackers.items()):
                guarded(name, lambda tracker=tracker: tracker.log(record["round"], numbers))  # type: ignore[misc]

    for name in names:
        guarded(name, lambda name=name: start(name))  # type: ignore[misc]
    try:
        yield log
    finally:
        for name, tracker in list(trackers.items()):
            guarded(name, tracker.close)
