"""TensorBoard: event files in the run directory's ``tensorboard``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"


class _Events:
    def __init__(self, run: Path, settings: Mapping[str, Any], finished: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(run / FOLDER), purge_step=finished + 1 if finished else None)
        rows = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
        self.writer.add_text("settings", f"| key | value |\n|---|---|\n{rows}", finished)

    def log(self, round_number: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, round_number)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def start(run: Path, settings: Mapping[str, Any], finished: int) -> _Events:
    """See :func:`fedfibos.trackers.tracker.tracked`."""
    return _Events(run, settings, finished)
