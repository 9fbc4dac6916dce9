"""The server's side of an app. A device imports it too, as both sides lie in one file, so it loads little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfibos.flower.client_app import MakeTask
from fedfibos.flower.one_line import in_one_line
from fedfibos.flower.task import Settings
from fedfibos.types import Dataset

MakeTest = Callable[[Settings], Dataset]
"""Flower's run configuration -> a test set that the server has."""


def server_app(task: MakeTask, test: MakeTest | None = None, calibration: MakeTest | None = None) -> ServerApp:
    """The Flower server app of a task.

    The run configuration holds ``run-dir``, the run directory to write, and ``resume``: whether to go on with the run
    that is there.

    Args:
        task: The task, from the run configuration.
        test: A test set on which the server evaluates; None: it does not.
        calibration: Training examples of the server's, to recalibrate batch normalisation on in evaluation.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        """Run the rounds."""
        from fedfibos.flower.serving import on_test_set, serve  # here: what a device has no use for

        config = context.run_config
        with in_one_line():
            if "run-dir" not in config:
                raise ValueError("the run configuration must have run-dir, the run directory to write")
            made, resume = task(config), bool(config.get("resume", False))
            evaluation = None
            if test is not None:
                evaluation = on_test_set(made, test(config), None if calibration is None else calibration(config))
            serve(made, grid, Path(str(config["run-dir"])), resume=resume, evaluation=evaluation)

    return app
