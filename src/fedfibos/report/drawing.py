"""How figures are drawn: their style, the widths of a column and of a page, their files."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from fedfibos.common.extras import extra

with extra("report"):
    import matplotlib
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D


class Layout(Enum):
    """Where a figure stands: its width in inches."""

    page = 7.0
    column = 3.4


STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedfibos",
    "pdf.fonttype": 42,
}
"""Text stays text in every file."""

FONTS = b"'DejaVu Sans', Verdana"
"""What an SVG asks for; Verdana has nearly the same widths, where there is no DejaVu Sans."""

LEGEND_LINE = 0.16
"""Height of a line of a legend, inches."""

LONGEST = 44
"""Letters of a line of a legend, beyond which it is broken where that makes room for a second column."""

LETTER = 0.068
"""Width of a letter of it, inches."""


@dataclass(frozen=True)
class Figure:
    """A figure, without a title of its own. It is drawn when it is first looked at.

    Attributes:
        slug: Name of its files.
        title: What it shows: its caption and text alternative.
        draw: Draws it for a layout.
    """

    slug: str
    title: str
    draw: Callable[[Layout], Canvas]

    @cached_property
    def wide(self) -> bytes:
        """SVG as wide as a page."""
        return self._svg(self._canvases[Layout.page])

    @cached_property
    def narrow(self) -> bytes:
        """SVG as wide as a column; on a telephone too."""
        return self._svg(self._canvases[Layout.column])

    def files(self) -> dict[str, bytes]:
        """Ending of the name -> content; those with ``-column`` are as wide as a column, the others as a page."""
        with matplotlib.rc_context(STYLE):
            page, column = self._canvases[Layout.page], self._canvases[Layout.column]
            return {
                ".svg": self.wide,
                ".pdf": _saved(page, "pdf", CreationDate=None),
                ".png": _saved(page, "png"),
                "-column.svg": self.narrow,
                "-column.pdf": _saved(column, "pdf", CreationDate=None),
            }

    @cached_property
    def _canvases(self) -> dict[Layout, Canvas]:
        drawn = {}
        with matplotlib.rc_context(STYLE):  # the global style is left as it was
            for layout in Layout:
                drawn[layout] = self.draw(layout)
                drawn[layout].draw_without_rendering()
                drawn[layout].set_layout_engine("none")  # laid out once, for all files
        return drawn

    @staticmethod
    def _svg(canvas: Canvas) -> bytes:
        with matplotlib.rc_context(STYLE):
            return _saved(canvas, "svg", Date=None).replace(b"'DejaVu Sans'", FONTS)


def canvas_of(layout: Layout, height: float) -> Canvas:
    """An empty canvas of a layout's width."""
    return Canvas(figsize=(layout.value, height), layout="constrained")


def legend_below(canvas: Canvas, layout: Layout, entries: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """One legend for all axes, below them; the canvas grows by its height, which must not press the axes flat.

    Args:
        canvas: The figure.
        layout: Its width.
        entries: Label and the look of its line.
    """
    longest = min(LONGEST, max(len(label) for label, _ in entries))
    columns = max(1, min(len(entries), 4, int(layout.value / (LETTER * longest + 0.4))))
    width = int((layout.value / columns - 0.4) / LETTER)
    labels = ["\n".join(textwrap.wrap(label, width)) for label, _ in entries]
    handles = [Line2D([], [], linewidth=1.4, markersize=4, **look) for _, look in entries]
    rows = math.ceil(len(labels) / columns)
    by_column = [labels[i * rows : (i + 1) * rows] for i in range(columns)]
    lines = max(sum(label.count("\n") + 1 for label in column) for column in by_column)
    canvas.set_size_inches(layout.value, canvas.get_figheight() + LEGEND_LINE * lines + 0.1)
    canvas.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=7,
        handlelength=2.4,
        labelspacing=0.3,
    )


def _saved(canvas: Canvas, form: str, **metadata: None) -> bytes:
    content = io.BytesIO()
    canvas.savefig(content, format=form, dpi=200, metadata=metadata or None)
    return content.getvalue()
