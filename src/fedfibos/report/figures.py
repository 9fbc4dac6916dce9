"""Figures over rounds and bytes: mean over seeds with a band of ± sd, panels with one legend.

Of runs with a single evaluation there is a point a line, side by side with its bar.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedfibos.common.extras import extra
from fedfibos.common.statistics import Spread, spread
from fedfibos.config.idle import without_idle
from fedfibos.data.partition import Partition
from fedfibos.report.drawing import Figure, Layout, canvas_of, legend_below
from fedfibos.report.groups import Group, Problem
from fedfibos.report.looks import MARKERS, Look
from fedfibos.report.paper import paper_figures
from fedfibos.report.records import Point
from fedfibos.runs.measures import Measure

with extra("report"):
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure
    from matplotlib.ticker import MaxNLocator
    from matplotlib.transforms import ScaledTranslation

MOST_MARKED = 12
"""Evaluations up to which each is marked on its line."""

FEW, FAINT, FAINTER = 8, 0.16, 0.06
"""Lines up to which bands are well told apart; how dark bands are then, and with more."""

POINT_STEP = 0.08
"""Between single points of one round, inches."""

PANEL = 1.9
"""Height of a panel, inches."""

LABEL = 26
"""Letters of a line of an axis's name, beside a panel of that height."""

ROUNDS = "rounds"
Read = Callable[[Point], float | None]
Line = list[tuple[float, Spread]]
"""(x, mean ± sd over seeds), in order."""


def accuracy_curves(problem: Problem, looks: Mapping[str, Look], slug: str) -> Figure:
    """The first metric over rounds, of the submodels (mean over capacities) and of the full model; over megabytes."""
    measure = problem.measure
    panels = accuracy_panels(measure)

    def draw(layout: Layout) -> MatplotlibFigure:
        canvas, axes = _panels(layout, len(panels), across=3)
        for pane, (y, x, read, line_of) in zip(axes, panels, strict=True):
            _name(pane, x, y)
            for place, group in enumerate(problem.groups):
                _draw(pane, line_of(group, read), looks[group.label], place, len(problem.groups), scale=measure.scale)
            if measure.share:
                _cut(pane, [line_of(group, read) for group in problem.groups])
        legend_below(canvas, layout, _entries(problem.groups, looks))
        return canvas

    title = (
        f"Global {measure.words} over rounds and by communication: {problem.label}. "
        f"Mean over seeds{_seeds(problem.groups)}; "
        "bands: ± standard deviation."
    )
    return Figure(f"curves-{slug}", title, draw)


def jaccard_curves(problem: Problem, slug: str) -> Figure | None:
    """Jaccard similarity with the magnitude selection by capacity, a panel for each method that departs from it."""
    groups = [group for group in problem.groups if _departs(group)]
    if not groups:
        return None
    capacities = [c for c in groups[0].records[0].points[0].evaluation["jaccard"] if float(c) < 1.0]
    shades = matplotlib.colormaps["viridis"]
    at = {c: matplotlib.colors.to_hex(shades(0.9 * i / max(1, len(capacities) - 1))) for i, c in enumerate(capacities)}
    paper = paper_figures()["figures"]["jaccard"] if _in_the_paper(problem) else {}

    def draw(layout: Layout) -> MatplotlibFigure:
        across = 4 if layout is Layout.page else 2
        canvas, axes = _panels(layout, len(groups), across, sharey=True)
        for number, (pane, group) in enumerate(zip(axes, groups, strict=True)):
            first, last = number % across == 0, number >= len(groups) - across
            _name(pane, ROUNDS if last else "", "Jaccard similarity" if first else "")
            pane.set_title("\n".join(textwrap.wrap(group.label, 26)), fontsize=6.5)
            for place, capacity in enumerate(capacities):
                look = Look(at[capacity], "-", MARKERS[place % len(MARKERS)])
                _draw(pane, _by_round(group, _jaccard(capacity)), look, place, len(capacities))
                if capacity in paper:
                    pane.axhline(paper[capacity], color=at[capacity], linestyle=":", linewidth=1)
        single = all(len(_rounds(group)) == 1 for group in groups)
        entries: list[tuple[str, dict[str, Any]]] = []
        for place, capacity in enumerate(capacities):
            shape = {"marker": MARKERS[place % len(MARKERS)], "linestyle": "none"} if single else {}
            entries.append((f"γ = {float(capacity):g}", {"color": at[capacity], **shape}))
        entries += [(f"paper, γ = {c}", {"color": at[c], "linestyle": ":"}) for c in capacities if c in paper]
        legend_below(canvas, layout, entries)
        return canvas

    title = f"Jaccard similarity with the magnitude selection, by capacity: {problem.label}. Bands: ± sd over seeds."
    return Figure(f"jaccard-{slug}", title, draw)


def dispersion_curves(problem: Problem, looks: Mapping[str, Look], slug: str) -> Figure | None:
    """CV_F of the maintained scores beside the CV of magnitudes; None where no method keeps scores."""
    scored = [
        g
        for g in problem.groups
        if any(p.evaluation["cv_f"] is not None for r in g.records for p in r.points)
        and g.experiment.method.settings.get("criterion") not in ("magnitude", "random")  # old records have a number
    ]
    if not scored:
        return None
    panels: tuple[tuple[str, Read], ...] = (
        ("CV of Fisher scores", lambda point: point.evaluation["cv_f"]),
        ("CV of magnitudes", lambda point: point.evaluation["cv_magnitude"]),
    )

    def draw(layout: Layout) -> MatplotlibFigure:
        canvas, axes = _panels(layout, len(panels), across=2)
        for pane, (y, read) in zip(axes, panels, strict=True):
            _name(pane, ROUNDS, y)
            for place, group in enumerate(scored):
                _draw(pane, _by_round(group, read), looks[group.label], place, len(scored))
        entries = _entries(scored, looks)
        if _in_the_paper(problem):
            axes[0].axhline(paper_figures()["figures"]["cv_f"], color="#333333", linestyle=":", linewidth=1)
            entries.append(("CV_F, paper", {"color": "#333333", "linestyle": ":"}))
        legend_below(canvas, layout, entries)
        return canvas

    title = f"Coefficient of variation of Fisher scores and of magnitudes: {problem.label}. Bands: ± sd over seeds."
    return Figure(f"cv-{slug}", title, draw)


def _panels(layout: Layout, count: int, across: int, sharey: bool = False) -> tuple[MatplotlibFigure, list[Axes]]:
    """A canvas of so many panels; as wide as a column they stand below one another, unless there are many."""
    columns = min(count, across if layout is Layout.page or across == 2 < count else 1)
    rows = math.ceil(count / columns)
    height = PANEL if rows < 3 or layout is Layout.column else 0.85 * PANEL
    canvas = canvas_of(layout, height * rows)
    axes = list(canvas.subplots(rows, columns, sharey=sharey, squeeze=False).flat)
    for empty in axes[count:]:
        empty.set_visible(False)
    return canvas, axes[:count]


def _name(pane: Axes, x: str, y: str) -> None:
    pane.set_xlabel(x)
    pane.set_ylabel("\n".join(textwrap.wrap(y, LABEL)))
    pane.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))


def _cut(pane: Axes, lines: Sequence[Line]) -> None:
    """The range of means and usual bands, in %: one band that is far wider than the others must not press them flat."""
    values = [value for line in lines for _, value in line]
    if not values:
        return
    deviations = sorted(100 * (value.sd or 0.0) for value in values)
    low, high = (100 * bound(value.mean for value in values) for bound in (min, max))
    room = deviations[3 * len(deviations) // 4] + 0.05 * (high - low) + 0.5
    pane.set_ylim(max(0.0, low - room), min(100.0, high + room))


def _entries(groups: Sequence[Group], looks: Mapping[str, Look]) -> list[tuple[str, dict[str, Any]]]:
    """Of the legend: labels, with their seeds where these differ."""
    told = _seeds(groups) == ""
    entries = []
    for group in groups:
        look = looks[group.label]
        label = f"{group.label} (n = {len(group.records)})" if told else group.label
        single = {"marker": look.marker, "linestyle": "none"}
        line = {"linestyle": look.dash}
        entries.append((label, {"color": look.colour, **(single if len(_rounds(group)) == 1 else line)}))
    return entries


def _seeds(groups: Sequence[Group]) -> str:
    """`` (n = 3)`` where every group has as many; else nothing."""
    counts = {len(group.records) for group in groups}
    return f" (n = {counts.pop()})" if len(counts) == 1 else ""


def _rounds(group: Group) -> set[int]:
    return {point.round for record in group.records for point in record.points}


def _departs(group: Group) -> bool:
    """Whether the selection is another than that by magnitude, at any capacity and time."""
    found = [point.evaluation["jaccard"] for record in group.records for point in record.points]
    return any(
        value is not None and value < 1.0 for of in found for capacity, value in of.items() if float(capacity) < 1.0
    )


def _in_the_paper(problem: Problem) -> bool:
    """Whether the paper's figures are of this data set and split."""
    data, theirs = problem.experiment.data, paper_figures()["figures"]
    split = without_idle(Partition(**theirs["partition"]))
    return data.name == theirs["data"] and without_idle(data.partition) == split


def _submodels(point: Point) -> float | None:
    value: float | None = point.evaluation["global"]["submodels"]["mean"]
    return value


def _full(point: Point) -> float | None:
    value: float | None = point.evaluation["global"]["full"]
    return value


def _jaccard(capacity: str) -> Read:
    return lambda point: point.evaluation["jaccard"].get(capacity)


def _by_round(group: Group, read: Read) -> Line:
    """Over the seeds, round by round."""
    values: dict[int, list[float | None]] = {}
    for record in group.records:
        for point in record.points:
            values.setdefault(point.round, []).append(read(point))
    return [(x, s) for x, v in sorted(values.items()) if (s := spread(v)) is not None]


def _by_bytes(group: Group, read: Read) -> Line:
    """As by round, at the mean of the megabytes sent by then."""
    sent: dict[int, list[int]] = {}
    for record in group.records:
        for point in record.points:
            sent.setdefault(point.round, []).append(point.bytes)
    return [(sum(sent[int(x)]) / len(sent[int(x)]) / 1e6, s) for x, s in _by_round(group, read)]


def _draw(pane: Axes, line: Line, look: Look, place: int, of: int, *, scale: float = 1.0) -> None:
    """Mean with a band of ± sd. A single point is drawn at its place beside the others, with its bar."""
    if not line:
        return
    x = [at for at, _ in line]
    mean = [scale * value.mean for _, value in line]
    sd = [scale * (value.sd or 0.0) for _, value in line]
    if len(line) == 1:
        _point(pane, x[0], mean[0], sd[0] if line[0][1].sd is not None else None, look, place)
        return
    seen = "." if len(line) <= MOST_MARKED else ""
    pane.plot(x, mean, color=look.colour, linestyle=look.dash, linewidth=1.3, marker=seen, markersize=4)
    low, high = ([m + sign * s for m, s in zip(mean, sd, strict=True)] for sign in (-1, 1))
    pane.fill_between(x, low, high, color=look.colour, alpha=FAINT if of <= FEW else FAINTER, linewidth=0)


def _point(pane: Axes, x: float, mean: float, sd: float | None, look: Look, place: int) -> None:
    """The only point of a line: in the middle, right of it, left of it, ... where all are at one round."""
    beside = 0
    if pane.get_xlabel() == ROUNDS:
        beside = (place + 1) // 2 * (1 if place % 2 else -1)
        pane.set_xticks([x])
    moved = ScaledTranslation(POINT_STEP * beside, 0, pane.figure.dpi_scale_trans)  # the axis keeps its numbers
    bars: dict[str, Any] = {"color": look.colour, "linewidth": 1.2, "capsize": 1.5, "fmt": look.marker}
    pane.errorbar(
        [x], [mean], yerr=None if sd is None else [sd], markersize=4, transform=pane.transData + moved, **bars
    )
    pane.update_datalim([(x, mean - (sd or 0.0)), (x, mean + (sd or 0.0))])
    pane.autoscale_view()


Panel = tuple[str, str, Read, Callable[[Group, Read], Line]]
"""Name of the vertical and of the horizontal axis, what is shown, over what."""


def accuracy_panels(measure: Measure) -> tuple[Panel, ...]:
    """Of the curves of a metric."""
    return (
        (f"submodels, {measure.heading}", ROUNDS, _submodels, _by_round),
        (f"full model, {measure.heading}", ROUNDS, _full, _by_round),
        (f"submodels, {measure.heading}", "MB sent, both ways", _submodels, _by_bytes),
    )
