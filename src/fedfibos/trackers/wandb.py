"""Weights & Biases. Offline unless ``WANDB_MODE`` says otherwise; ``wandb sync`` sends the run later."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = "fedfibos"


class _Run:
    def __init__(self, run: Path, settings: Mapping[str, Any], finished: int) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE", "offline")
        again: dict[str, Any] = {} if mode == "offline" else {"id": identity(run), "resume": "allow"}
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self.run: Any = wandb.init(
            project=project,
            name=run.name,
            dir=str(run),
            mode=mode,
            config=dict(settings),
            settings=wandb.Settings(silent=True),
            **again,
        )

    def log(self, round_number: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=round_number)

    def close(self) -> None:
        self.run.finish()


def identity(run: Path) -> str:
    """The same for a run that goes on, and nothing of where it lies."""
    return hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]


def start(run: Path, settings: Mapping[str, Any], finished: int) -> _Run:
    """See :func:`fedfibos.trackers.tracker.tracked`."""
    return _Run(run, settings, finished)
