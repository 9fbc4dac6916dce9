"""A picture of a partition: how many examples of which class each client has, and how many in all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfibos.common.extras import extra
from fedfibos.report.drawing import Figure
from fedfibos.report.groups import Problem

with extra("report"):
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator

WIDTH = 5.2
MOST_NAMED = 30
"""Classes that are named at their rows."""

STYLE: dict[Any, Any] = {"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "fedfibos", "pdf.fonttype": 42}
FORMATS = (".svg", ".png", ".pdf")


def draw_partition(counts: Tensor, classes: tuple[str, ...], file: Path) -> None:
    """Write the picture: classes by client, sizes above; without classes, sizes alone.

    Args:
        counts: Training examples of each class of each client; int64, shape ``(clients, classes)``. Without classes,
            those of each client, shape ``(clients, 1)``.
        classes: Their names; empty where the targets are none.
        file: ``.svg``, ``.png`` or ``.pdf``.

    Raises:
        ValueError: Another kind of file, or one that cannot be written.
    """
    if file.suffix.lower() not in FORMATS:
        raise ValueError(f"a picture must be one of {', '.join(FORMATS)}, got {str(file)!r}")
    with matplotlib.rc_context(STYLE):
        figure = painted(counts, classes, WIDTH) if classes else painted_sizes(counts, WIDTH)
        try:
            figure.savefig(file, dpi=200)
        except OSError as error:
            raise ValueError(f"{file}: cannot be written: {error.strerror}") from None


def painted(counts: Tensor, classes: Sequence[str], width: float) -> Canvas:
    """Sizes by client above classes by client, on a canvas of that width in inches."""
    number = len(classes)
    canvas = Canvas(figsize=(width, 1.6 + 0.16 * min(number, MOST_NAMED)), layout="constrained")
    sizes, grid = canvas.subplots(2, 1, sharex=True, height_ratios=(1, 2.5))
    _bars(sizes, counts)
    numbers = counts.T.double().numpy()
    shown = grid.imshow(numbers, aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, rasterized=True)
    grid.grid(False)
    grid.set_xlabel("client")
    grid.set_ylabel("class")
    if number <= MOST_NAMED:
        grid.set_yticks(range(number), [name[:20] for name in classes])
    canvas.colorbar(shown, ax=grid, label="examples of the class", ticks=MaxNLocator(5, integer=True))
    return canvas


def painted_sizes(counts: Tensor, width: float) -> Canvas:
    """Sizes by client, on a canvas of that width in inches."""
    canvas = Canvas(figsize=(width, 2.0), layout="constrained")
    sizes = canvas.subplots()
    _bars(sizes, counts)
    sizes.set_xlabel("client")
    return canvas


def _bars(sizes: Axes, counts: Tensor) -> None:
    sizes.bar(range(len(counts)), counts.sum(1).tolist(), width=0.9, color="#0072b2")
    sizes.set_ylabel("examples")
    sizes.spines[["top", "right"]].set_visible(False)


def partition_figure(problem: Problem, slug: str) -> Figure | None:
    """How a problem's examples are dealt, by its first seed that has it on record; None without one."""
    records = [record for group in problem.groups for record in group.records if record.dealt is not None]
    if not records:
        return None
    first = min(records, key=lambda record: record.experiment.seed)
    assert first.dealt is not None
    counts, classes = torch.tensor(first.dealt["counts"]), first.dealt["classes"]
    title = f"Who has which examples: {problem.label}. Seed {first.experiment.seed}."
    return Figure(f"partition-{slug}", title, lambda layout: painted(counts, classes, layout.value))
