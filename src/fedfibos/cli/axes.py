"""``fedfibos axes``: a model's table of channel axes, or a skeleton of it and what the tracer stumbled over."""

from __future__ import annotations

from pathlib import Path

from fedfibos.channels.table_text import table_text
from fedfibos.cli.terminal import warn
from fedfibos.config.experiment import Experiment
from fedfibos.simulation import build_world


def show_axes(experiment: Experiment, data_dir: Path | None) -> None:
    """Print the table as Python; where it cannot be derived, why goes to standard error and the skeleton is printed."""
    model = build_world(experiment, device="cpu", data_dir=data_dir).model
    why = "no channels of this model can be left out"
    try:
        axes = model.axes if model.axes.sizes else None
        for layer, reason in model.axes.whole.items():
            warn(f"{layer!r} stays whole: {reason}")
    except ValueError as error:
        why, axes = str(error), None
    if axes is None:
        warn(f"{why}; below is the table with nothing sliced, to be filled in and pasted into the module")
    print(table_text(model.module, axes), end="")
