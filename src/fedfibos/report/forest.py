"""The forest plot: every method against the reference, measure by measure, with 95 % intervals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from fedfibos.common.extras import extra
from fedfibos.common.statistics import Spread
from fedfibos.report.drawing import Figure, Layout, canvas_of
from fedfibos.report.looks import Look
from fedfibos.report.paired import MARGIN, Answer, Line, Verdict, verdict

with extra("report"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

HEAD, ROW, LOW_ROW = 0.75, 0.17, 0.15
"""Height of what is above and below all lines, of a line as wide as a page and as a column, inches."""

NAME = 30
"""Letters of a method's name on a line."""

GRID = (-100, -30, -10, -3, 0, 3, 10, 30, 100)
"""Points that have a line and, where there is room, a number."""

WIDE, LINEAR = 15.0, 2.0
"""Points beyond which the axis is logarithmic at its ends; and up to which it is linear then."""

FAR = 3.0
"""Half widths of the middle one of all intervals beyond which an interval is cut at the edge."""


def forest(answer: Answer, looks: Mapping[str, Look], slug: str) -> Figure:
    """Difference of the first metric from the reference, paired by seed, with its 95 % interval; the band is ±1 point.

    Of a metric that is no share there is no band, and differences are in its own unit. As wide as a page, measures
    stand side by side; as wide as a column, below one another, method by method.
    """
    measure = answer.problem.measure
    unit, band = (", in points", " Band: ±1 point.") if measure.share else ("", "")
    what = f"{measure.words[0].upper()}{measure.words[1:]} minus that of {answer.reference.label}{unit}"
    if measure.sign < 0:
        what = f"How much lower, which is better, the {measure.words} is than that of {answer.reference.label}"
    title = (
        f"{what}, paired by seed, with 95 % intervals: {answer.problem.label}.{band} Filled: settled; hollow: not "
        "settled."
    )
    if measure.share and _reaches_far(_limits(answer.lines)):
        title += f" The axis is logarithmic beyond {LINEAR:g} points, with lines at 3, 10 and 30."

    def draw(layout: Layout) -> MatplotlibFigure:
        return _side_by_side(answer, looks) if layout is Layout.page else _in_blocks(answer, looks)

    return Figure(f"forest-{slug}", title, draw)


def _side_by_side(answer: Answer, looks: Mapping[str, Look]) -> MatplotlibFigure:
    names = [textwrap.wrap(line.group.label, NAME) for line in answer.lines]
    tops, bottoms, height = [], [], 0.0
    for name in names:
        tall = max(1.3, len(name) * 0.8 + 0.4)
        tops.append(height + tall / 2)
        height += tall
        bottoms.append(height)
    canvas = canvas_of(Layout.page, HEAD + ROW * height)
    axes = canvas.subplots(1, len(answer.measures), sharey=True, sharex=True, squeeze=False)[0]
    for pane, measure in zip(axes, answer.measures, strict=True):
        pane.set_title(measure.replace(", ", ",\n"), fontsize=7)
        _ground(pane, answer)
        for top, line in zip(tops, answer.lines, strict=True):
            _mark(pane, top, line, measure, looks)
        pane.tick_params(axis="y", length=0)
        pane.grid(visible=False, axis="y")
        for bottom in bottoms[:-1]:
            pane.axhline(bottom, color="#dddddd", linewidth=0.5)
    axes[0].set_yticks(tops, ["\n".join(name) for name in names])
    axes[0].set_ylim(height, 0)
    _scale(axes[0], answer.lines, most=5)
    canvas.supxlabel(_ahead(answer), fontsize=8)
    return canvas


def _in_blocks(answer: Answer, looks: Mapping[str, Look]) -> MatplotlibFigure:
    places: list[tuple[float, Line, str]] = []
    heads: list[tuple[float, str]] = []
    at = 0.0
    for line in answer.lines:
        for text in textwrap.wrap(line.group.label, 46):
            heads.append((at, text))
            at += 1
        for measure in answer.measures:
            if measure in line.differences:
                places.append((at, line, measure))
                at += 1
        at += 0.6
    canvas = canvas_of(Layout.column, HEAD + LOW_ROW * at)
    pane = canvas.subplots()
    _ground(pane, answer)
    for top, line, measure in places:
        _mark(pane, top, line, measure, looks)
    for top, text in heads:
        pane.annotate(
            text, (0, top), xycoords=("axes fraction", "data"), xytext=(-62, 0), textcoords="offset points",
            fontsize=8, fontweight="bold", va="center", annotation_clip=False,
        )  # fmt: skip
    pane.set_yticks([top for top, _, _ in places], [measure for _, _, measure in places])
    pane.set_ylim(at, -0.8)
    _scale(pane, answer.lines, most=9)
    pane.tick_params(axis="y", length=0)
    pane.grid(visible=False, axis="y")
    pane.set_xlabel("\n".join(textwrap.wrap(_ahead(answer), 44)))
    return canvas


def _ahead(answer: Answer) -> str:
    """What the axis is: to the right is better."""
    measure, reference = answer.problem.measure, answer.reference.label
    if measure.share and measure.sign > 0:
        return f"points ahead of {reference}"
    unit = " in points" if measure.share else ""
    return f"{measure.words} {'below' if measure.sign < 0 else 'above'} that of {reference}{unit} (right is better)"


def _ground(pane: Axes, answer: Answer) -> None:
    if answer.problem.measure.share:
        pane.axvspan(-100 * MARGIN, 100 * MARGIN, color="#000000", alpha=0.13, linewidth=0)
    pane.axvline(0, color="#444444", linewidth=0.8)
    pane.spines["left"].set_visible(False)


def _mark(pane: Axes, top: float, line: Line, measure: str, looks: Mapping[str, Look]) -> None:
    """A method's difference in one measure, with its interval; hollow where nothing is settled."""
    value = line.differences.get(measure)
    if value is None:
        return
    look, unit = looks[line.group.label], line.group.records[0].measure
    low, high = value.interval() or (value.mean, value.mean)
    hollow = verdict(value, unit) is Verdict.open
    pane.plot(
        [unit.scale * low, unit.scale * high], [top, top], color=look.colour, linewidth=1.4, solid_capstyle="butt"
    )
    pane.plot(
        [unit.scale * value.mean], [top], marker="o", markersize=4.5, color=look.colour, linestyle="none",
        clip_on=False, markerfacecolor="#ffffff" if hollow else look.colour,
    )  # fmt: skip


def _scale(pane: Axes, lines: Sequence[Line], most: int) -> None:
    """The axis of differences; where they reach far, logarithmic beyond ``LINEAR`` points, so that near ones show.

    Args:
        pane: The axes.
        lines: What must be seen.
        most: Numbers on the axis, at most.
    """
    low, high = _limits(lines)
    if lines[0].group.records[0].measure.share and _reaches_far((low, high)):
        pane.set_xscale("asinh", linear_width=LINEAR)
        ticks = [t for t in GRID if low <= t <= high]
        told = [t for t in ticks if len(ticks) <= most or t in (-30, 0, 30) or (max(-low, high) < 30 and abs(t) == 10)]
        pane.set_xticks(ticks, [(f"{t:+g}".replace("-", "−") if t else "0") if t in told else "" for t in ticks])
        pane.minorticks_off()
    pane.set_xlim(low, high)


def _reaches_far(limits: tuple[float, float]) -> bool:
    return max(-limits[0], limits[1]) > WIDE


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    """What the axis shows, in points: every mean and, but for the far ends of very wide ones, every interval.

    Of a metric that is no share in its own unit.
    """
    measure = lines[0].group.records[0].measure
    scale = measure.scale
    found: list[Spread] = [value for line in lines for value in line.differences.values()]
    means = [scale * value.mean for value in found]
    unit = 1.0 if measure.share else max(map(abs, means)) / 3 or 1.0  # a point, or what is small beside the means
    low, high = min(means), max(means)
    halves = sorted(scale * (ends[1] - value.mean) for value in found if (ends := value.interval()) is not None)
    most = max(3.0 * unit, FAR * halves[len(halves) // 2]) if halves else 3.0 * unit
    for value in found:
        ends = value.interval() or (value.mean, value.mean)
        low = min(low, max(scale * ends[0], scale * value.mean - most))
        high = max(high, min(scale * ends[1], scale * value.mean + most))
    room = 0.06 * (high - low)
    if measure.share and _reaches_far((low, high)):
        return min(-1.5, 1.35 * low), max(1.5, 1.35 * high)
    return min(-1.5 * unit, low - room), max(1.5 * unit, high + room)
