"""MLflow: files in the run directory's ``mlruns`` unless ``MLFLOW_TRACKING_URI`` names a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXPERIMENT, FOLDER = "fedfibos", "mlruns"


class _Run:
    def __init__(self, run: Path, settings: Mapping[str, Any], finished: int) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # from version 3 on files are to be asked for
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI") or (run / FOLDER).resolve().as_uri()
        self.client: Any = MlflowClient(tracking_uri=uri)
        there = self.client.get_experiment_by_name(EXPERIMENT)
        experiment = there.experiment_id if there is not None else self.client.create_experiment(EXPERIMENT)
        self.id: str = self.client.create_run(experiment, run_name=run.name).info.run_id
        for key, value in settings.items():
            self.client.log_param(self.id, key, value)

    def log(self, round_number: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.client.log_metric(self.id, name, number, step=round_number)

    def close(self) -> None:
        self.client.set_terminated(self.id)


def start(run: Path, settings: Mapping[str, Any], finished: int) -> _Run:
    """See :func:`fedfibos.trackers.tracker.tracked`."""
    return _Run(run, settings, finished)
