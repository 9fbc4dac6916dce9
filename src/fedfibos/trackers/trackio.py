"""Trackio: its own database on this machine (``TRACKIO_DIR``); ``trackio show`` draws it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = "fedfibos"


class _Run:
    def __init__(self, run: Path, settings: Mapping[str, Any], finished: int) -> None:
        import trackio

        self.run: Any = trackio.init(project=PROJECT, name=run.name, config=dict(settings), embed=False)

    def log(self, round_number: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=round_number)

    def close(self) -> None:
        self.run.finish()


def start(run: Path, settings: Mapping[str, Any], finished: int) -> _Run:
    """See :func:`fedfibos.trackers.tracker.tracked`."""
    return _Run(run, settings, finished)
