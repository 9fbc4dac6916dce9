"""docs/findings.svg: differences to FIARSE by method, data and measure, with 95 % intervals.

The drawing is written out by hand, so that it is the same with any version of any library.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from evidence.compared import PLACES, Comparison
from fedfibos.common.statistics import Spread

WIDTH, LEFT, TOP, ROW, GAP = 900, 330, 64, 24, 20
LOWEST, HIGHEST = -0.15, 0.20
"""Of the axis; intervals that go on are cut with an arrow."""


def forest(groups: Sequence[tuple[str, Sequence[Comparison]]]) -> str:
    """The drawing as SVG: a heading for each group, a row for each comparison, a pane for each measure."""
    pane = (WIDTH - LEFT - GAP * len(PLACES)) / len(PLACES)
    starts = [LEFT + position * (pane + GAP) for position in range(len(PLACES))]
    rows: list[str] = []
    y = TOP
    for heading, comparisons in groups:
        rows.append(f'<text x="12" y="{y + 5}" font-weight="600">{escape(heading)}</text>')
        y += ROW
        for comparison in comparisons:
            rows.append(f'<text x="24" y="{y + 5}">{escape(comparison.said)}</text>')
            for start, keys in zip(starts, PLACES.values(), strict=True):
                if (found := comparison.of(keys)) is not None:
                    rows += _mark(found, start, pane, y)
            y += ROW
        y += 6
    bottom, height = y - 6, y + 30
    ground = [
        f'<text x="{start + pane / 2:.1f}" y="24" text-anchor="middle">{place}</text>'
        for start, place in zip(starts, PLACES, strict=True)
    ]
    for start in starts:
        for tick in (-0.1, 0.0, 0.1):
            x = _x(tick, start, pane)
            colour = "#6b7280" if tick == 0 else "#e5e7eb"
            ground.append(f'<line x1="{x:.1f}" y1="36" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>')
            label = f"{100 * tick:+.0f}".replace("-", "−") if tick else "0"
            ground.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#4b5563">{label}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#111827">\n'
        "<title>Accuracy minus FIARSE's, in points, with 95 % intervals</title>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    )
    return "\n".join([head, *ground, *rows, "</svg>", ""])


def _x(value: float, start: float, pane: float) -> float:
    return start + (value - LOWEST) / (HIGHEST - LOWEST) * pane


def _mark(found: Spread, start: float, pane: float, y: float) -> list[str]:
    """A point and its interval: hollow where there is one pair only, an arrow and its value where it lies outside."""
    limits = found.interval()
    low, high = limits or (found.mean, found.mean)
    colour = "#9ca3af" if limits is None else "#0072b2" if low > 0 else "#d55e00" if high < 0 else "#4b5563"
    left, right = (_x(value, start, pane) for value in (LOWEST, HIGHEST))
    if not LOWEST <= found.mean <= HIGHEST:
        text = f"{100 * found.mean:+.0f}".replace("-", "−")
        if found.mean < LOWEST:
            return [_arrow(left, y, -1, colour), f'<text x="{left + 10:.1f}" y="{y + 5}" fill="{colour}">{text}</text>']
        label = f'<text x="{right - 10:.1f}" y="{y + 5}" text-anchor="end" fill="{colour}">{text}</text>'
        return [_arrow(right, y, 1, colour), label]
    ends = [_x(max(low, LOWEST), start, pane), _x(min(high, HIGHEST), start, pane)]
    parts = [f'<line x1="{ends[0]:.1f}" y1="{y}" x2="{ends[1]:.1f}" y2="{y}" stroke="{colour}" stroke-width="2"/>']
    parts += [_arrow(left, y, -1, colour)] if low < LOWEST else []
    parts += [_arrow(right, y, 1, colour)] if high > HIGHEST else []
    fill, x = "#ffffff" if limits is None else colour, _x(found.mean, start, pane)
    return [*parts, f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>']


def _arrow(x: float, y: float, side: int, colour: str) -> str:
    return f'<path d="M{x:.1f} {y} l{-6 * side} -4 v8 z" fill="{colour}"/>'
