"""A picture of a partition: how many examples of which class each client has, and how many in all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from fedfibos.common.extras import extra

with extra("report"):
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

WIDTH = 5.2
MOST_NAMED = 30
"""Classes that are named at their rows."""

STYLE: dict[Any, Any] = {"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "fedfibos", "pdf.fonttype": 42}
FORMATS = (".svg", ".png", ".pdf")


def draw_partition(counts: Tensor, classes: tuple[str, ...], file: Path) -> None:
    """Write the picture: classes by client, sizes above.

    Args:
        counts: Training examples of each class of each client; int64, shape ``(clients, classes)``.
        classes: Their names.
        file: ``.svg``, ``.png`` or ``.pdf``.

    Raises:
        ValueError: Another kind of file, or one that cannot be written.
    """
    if file.suffix.lower() not in FORMATS:
        raise ValueError(f"a picture must be one of {', '.join(FORMATS)}, got {str(file)!r}")
    clients, number = counts.shape
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.6 + 0.16 * min(number, MOST_NAMED)), layout="constrained")
        sizes, grid = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.5))
        sizes.bar(range(clients), counts.sum(1).tolist(), width=0.9, color="#0072b2")
        sizes.set_ylabel("examples")
        sizes.spines[["top", "right"]].set_visible(False)
        shown = grid.imshow(
            counts.T.double().numpy(), aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, rasterized=True
        )
        grid.set_xlabel("client")
        grid.set_ylabel("class")
        if number <= MOST_NAMED:
            grid.set_yticks(range(number), [name[:20] for name in classes])
        figure.colorbar(shown, ax=grid, label="examples of the class", ticks=MaxNLocator(5, integer=True))
        try:
            figure.savefig(file, dpi=200)
        except OSError as error:
            raise ValueError(f"{file}: cannot be written: {error.strerror}") from None
