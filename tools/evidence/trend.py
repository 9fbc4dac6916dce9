"""docs/trend.svg: accuracy minus FIARSE's by how unlike the clients are, a line a method, with 95 % intervals.

The drawing is written out by hand, like that of :mod:`evidence.forest`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from evidence.compared import PLACES
from evidence.records import Study

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 900, 400, 56, 92, 330, 36
COLOURS = ("#4b5563", "#e69f00", "#0072b2", "#009e73")
"""Of Okabe and Ito's colours, in the order of the methods."""


def trend(study: Study, names: Mapping[str, str], base: str) -> str:
    """The drawing as SVG: a pane for each measure, the splits from the most to the least heterogeneous."""
    cells = study.in_order()
    low, high = _range(study, names, base)
    pane = (WIDTH - LEFT - GAP * len(PLACES)) / len(PLACES)
    marks: list[str] = []
    for number, (place, keys) in enumerate(PLACES.items()):
        start = LEFT + number * (pane + GAP)
        marks.append(f'<text x="{start + pane / 2:.1f}" y="{TOP - 14}" text-anchor="middle">{place}</text>')
        marks += _axes(start, pane, low, high, [study.splits[cell[0]] for cell in cells], labelled=number == 0)
        for position, (method, colour) in enumerate(zip(names, COLOURS, strict=True)):
            points = []
            for n, cell in enumerate(cells):
                found = study.difference(cell, method, base, *keys)
                if found is None:
                    continue
                x = start + (n + 0.5) * pane / len(cells) + 5 * (position - 1.5)
                y, *ends = (_y(v, low, high) for v in (found.mean, *(found.interval() or (found.mean,) * 2)))
                points.append((x, y))
                marks.append(
                    f'<line x1="{x:.1f}" y1="{min(max(ends[0], TOP), BOTTOM):.1f}" x2="{x:.1f}" '
                    f'y2="{min(max(ends[1], TOP), BOTTOM):.1f}" stroke="{colour}" stroke-opacity=".45"/>'
                )
                marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            marks.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return "\n".join([_head(), *_legend(list(names.values())), *marks, "</svg>", ""])


def _range(study: Study, names: Sequence[str] | Mapping[str, str], base: str) -> tuple[float, float]:
    """Of all means, to the next five points."""
    found = [
        gap.mean
        for cell in study.in_order()
        for name in names
        for keys in PLACES.values()
        if (gap := study.difference(cell, name, base, *keys)) is not None
    ]
    return math.floor(min(0.0, *found) * 20) / 20, math.ceil(max(0.0, *found) * 20) / 20


def _y(value: float, low: float, high: float) -> float:
    return BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP)


def _axes(start: float, pane: float, low: float, high: float, splits: Sequence[str], labelled: bool) -> list[str]:
    step = 0.05 if high - low <= 0.3 else 0.1
    parts = []
    for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        y = _y(number * step, low, high)
        colour = "#6b7280" if number == 0 else "#e5e7eb"
        parts.append(f'<line x1="{start:.1f}" y1="{y:.1f}" x2="{start + pane:.1f}" y2="{y:.1f}" stroke="{colour}"/>')
        if labelled:
            text = "0" if number == 0 else f"{100 * number * step:+.0f}".replace("-", "−")
            parts.append(f'<text x="{start - 8:.1f}" y="{y + 4:.1f}" text-anchor="end" fill="#4b5563">{text}</text>')
    for n, split in enumerate(splits):
        x = start + (n + 0.5) * pane / len(splits)
        place = f'x="{x:.1f}" y="{BOTTOM + 16}" text-anchor="end" transform="rotate(-24 {x:.1f} {BOTTOM + 16})"'
        parts.append(f'<text {place} fill="#4b5563" font-size="11">{escape(split)}</text>')
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts, x = [], float(LEFT)
    for name, colour in zip(names, COLOURS, strict=True):
        parts.append(f'<circle cx="{x + 5:.1f}" cy="26" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15:.1f}" y="31">{escape(name)}</text>')
        x += 36 + 7.0 * len(name)
    return parts


def _head() -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#111827">\n'
        "<title>Accuracy minus FIARSE's, in points, by how unlike the clients are</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    )
