"""The figures of a report, each drawn once as SVG and PNG: curves over rounds, mean and ± sd over seeds.

Of runs with a single evaluation there is a point a line, side by side with its bar.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedfibos.common.extras import extra
from fedfibos.common.statistics import Spread, spread
from fedfibos.config.idle import without_idle
from fedfibos.data.partition import Partition
from fedfibos.report.groups import Group, Problem, file_names
from fedfibos.report.paper import reported
from fedfibos.report.records import Point

with extra("report"):
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator
    from matplotlib.transforms import ScaledTranslation

COLOURS = {
    "fedavg": "#999999",
    "heterofl": "#e69f00",
    "fedrolex": "#56b4e9",
    "fedbrb": "#cc79a7",
    "fiarse": "#009e73",
    "fedfibos": "#0072b2",
    "fedfibos-channels": "#d55e00",
}
"""Of the methods, the same in every figure (Okabe and Ito's palette, told apart by colour-blind readers)."""

COLOURS_IN_ALL = 20
CAPACITY_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#555555")
Dash = str | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0.0, (8.0, 2.0)),
    (0.0, (1.0, 4.0)),
    (0.0, (6.0, 2.0, 1.0, 2.0, 1.0, 2.0)),
    (0.0, (3.0, 4.0)),
)
"""Of several versions of one method."""

MARKERS = "osD^vPX*"
"""Of single points: a shape a line."""

MOST_MARKED = 12
"""Evaluations up to which each is marked on its line."""

MOST_BANDS = 8
"""Lines of a figure up to which the bands of their spread can be told apart."""

MOST_DASHES = 4
"""Versions of one method up to which a colour a method and dashes tell lines apart; with more, a colour a line."""

WIDTH, AXES_HEIGHT, LINE_HEIGHT = 5.2, 3.5, 0.18
"""Of a figure, of its part above the legend, of a line of the legend; inches."""

POINT_STEP = 0.12
"""Between single points of one round, inches."""

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.fonttype": "path",
    "svg.hashsalt": "fedfibos",
}


@dataclass(frozen=True)
class Figure:
    """A drawn figure.

    Attributes:
        slug: Name of its files.
        title: What it shows; its text alternative.
        svg: The drawing.
        png: The same as pixels.
    """

    slug: str
    title: str
    svg: bytes
    png: bytes


Line = list[tuple[float, Spread]]
"""(x, mean ± sd over seeds), in order."""


def accuracy_curves(problem: Problem, slug: str) -> list[Figure]:
    """Global accuracy over rounds: of the submodels (mean over capacities), and of the full model."""
    return [
        _curves(
            problem, f"curves-{which}-{slug}", f"Global accuracy, {which}: {problem.label}", "rounds", read, _by_round
        )
        for which, read in (("submodels", _submodels), ("full", _full))
    ]


def communication_curves(problem: Problem, slug: str) -> Figure:
    """Global accuracy of submodels over megabytes sent."""
    title = f"Global accuracy (submodels) by communication: {problem.label}"
    return _curves(problem, f"communication-{slug}", title, "MB sent, both ways", _submodels, _by_bytes)


def jaccard_curves(problem: Problem, slug: str) -> list[Figure]:
    """Jaccard similarity with the magnitude selection by capacity, a figure for each method that departs from it."""
    figures = []
    for name, group in zip(file_names(problem), problem.groups, strict=True):
        points = [point for record in group.records for point in record.points]
        capacities = [c for c in points[0].evaluation["jaccard"] if float(c) < 1.0]
        if not any(point.evaluation["jaccard"].get(c, 1.0) < 1.0 for point in points for c in capacities):
            continue
        title = f"Jaccard similarity of {group.label} with the magnitude selection: {problem.label}"
        with _drawing(title, "rounds", "Jaccard similarity") as (canvas, axes):
            for place, (colour, capacity) in enumerate(zip(_colours(len(capacities)), capacities, strict=True)):
                line = _by_round(group, _jaccard(capacity))
                _draw(axes, line, f"γ = {float(capacity):g}", colour, "-", place=place)
                paper = reported()["figures"]["jaccard"].get(capacity)
                if paper is not None and _in_the_paper(problem):
                    axes.axhline(paper, color=colour, linestyle=":", linewidth=1, label=f"paper, γ = {capacity}")
            axes.set_ylim(0, 1)
            canvas.legend(loc="outside lower center", ncols=3, frameon=False)
            figures.append(_drawn(canvas, f"jaccard-{slug}-{name}", title))
    return figures


def dispersion_curves(problem: Problem, slug: str) -> Figure | None:
    """CV_F of the maintained scores beside the CV of magnitudes; None where no method keeps scores."""
    scored = [
        g
        for g in problem.groups
        if any(p.evaluation["cv_f"] is not None for r in g.records for p in r.points)
        and g.experiment.method.settings.get("criterion") not in ("magnitude", "random")  # old records have a number
    ]
    if not scored:
        return None
    title = f"CV of Fisher scores and of magnitudes: {problem.label}"
    with _drawing(title, "rounds", "std / mean") as (canvas, axes):
        for place, (colour, group) in enumerate(zip(_colours(len(scored)), scored, strict=True)):
            line = _by_round(group, lambda point: point.evaluation["cv_f"])
            _draw(axes, line, f"CV_F, {group.label}", colour, "-", place=2 * place)
            line = _by_round(group, lambda point: point.evaluation["cv_magnitude"])
            _draw(axes, line, f"CV of |x|, {group.label}", colour, "--", place=2 * place + 1)
        if _in_the_paper(problem):
            paper = reported()["figures"]["cv_f"]
            axes.axhline(paper, color="#333333", linestyle=":", linewidth=1, label="CV_F, paper")
        axes.set_ylim(bottom=max(0.0, 10 * math.floor(axes.dataLim.y0 / 10) - 10))
        canvas.legend(loc="outside lower center", ncols=1, frameon=False)
        return _drawn(canvas, f"cv-{slug}", title)


def _curves(
    problem: Problem,
    slug: str,
    title: str,
    x: str,
    read: Callable[[Point], float | None],
    line_of: Callable[[Group, Callable[[Point], float | None]], Line],
) -> Figure:
    with _drawing(title, x, "accuracy in %") as (canvas, axes):
        many = len(problem.groups) > MOST_BANDS
        for place, (group, (colour, dash)) in enumerate(zip(problem.groups, _looks(problem.groups), strict=True)):
            label = f"{group.label} (n = {len(group.records)})"
            _draw(axes, line_of(group, read), label, colour, dash, scale=100, place=place, band=not many)
        if many and x == "rounds":  # there are none where the bars stand
            last = problem.experiment.federation.rounds
            axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= last])
        axes.set_ylim(bottom=max(0.0, 10 * math.floor(axes.dataLim.y0 / 10) - 10))
        canvas.legend(loc="outside lower center", ncols=1 if _long(problem) else 2, frameon=False)
        return _drawn(canvas, slug, title)


def _in_the_paper(problem: Problem) -> bool:
    """Whether the paper's figures are of this data set and split."""
    data, theirs = problem.experiment.data, reported()["figures"]
    split = without_idle(Partition(**theirs["partition"]))
    return data.name == theirs["data"] and without_idle(data.partition) == split


def _colours(count: int) -> Sequence[str]:
    """As many colours as there are lines to tell apart."""
    many = [matplotlib.colors.to_hex(c) for c in matplotlib.colormaps["tab20"].colors]  # type: ignore[attr-defined]
    palette = CAPACITY_COLOURS if count <= len(CAPACITY_COLOURS) else many[:COLOURS_IN_ALL]
    return [palette[i % len(palette)] for i in range(count)]


def _long(problem: Problem) -> bool:
    return any(len(f"{group.label} (n = {len(group.records)})") > 32 for group in problem.groups)


def _looks(groups: Sequence[Group]) -> list[tuple[str, Dash]]:
    """Colour and dash of every line: solid for a method's first version, then dashed, dotted, ...

    With many versions of one method a colour for each line, which goes round.
    """
    seen: dict[str, int] = {}
    own = [COLOURS.get(group.experiment.method.name, "#333333") for group in groups]  # users' methods share one
    if max(map(own.count, own)) > MOST_DASHES:
        colours = _colours(len(groups))
        return [(colour, DASHES[i // COLOURS_IN_ALL % len(DASHES)]) for i, colour in enumerate(colours)]
    looks: list[tuple[str, Dash]] = []
    for colour in own:
        looks.append((colour, DASHES[seen.get(colour, 0)]))
        seen[colour] = seen.get(colour, 0) + 1
    return looks


def _submodels(point: Point) -> float | None:
    value: float | None = point.evaluation["global"]["submodels"]["mean"]
    return value


def _full(point: Point) -> float | None:
    value: float | None = point.evaluation["global"]["full"]
    return value


def _jaccard(capacity: str) -> Callable[[Point], float | None]:
    return lambda point: point.evaluation["jaccard"].get(capacity)


def _by_round(group: Group, read: Callable[[Point], float | None]) -> Line:
    """Over the seeds, round by round."""
    values: dict[int, list[float | None]] = {}
    for record in group.records:
        for point in record.points:
            values.setdefault(point.round, []).append(read(point))
    return [(x, s) for x, v in sorted(values.items()) if (s := spread(v)) is not None]


def _by_bytes(group: Group, read: Callable[[Point], float | None]) -> Line:
    """As by round, at the mean of the megabytes sent by then."""
    sent: dict[int, list[int]] = {}
    for record in group.records:
        for point in record.points:
            sent.setdefault(point.round, []).append(point.bytes)
    return [(sum(sent[int(x)]) / len(sent[int(x)]) / 1e6, s) for x, s in _by_round(group, read)]


def _draw(
    axes: Axes,
    line: Line,
    label: str,
    colour: str,
    dash: Dash,
    *,
    scale: float = 1.0,
    place: int = 0,
    band: bool = True,
) -> None:
    """Mean with a band of ± sd; without a band, the last sd as the bar at that place behind the line's end.

    A single point is drawn at its place beside the others, with its bar.
    """
    x = [at for at, _ in line]
    mean = [scale * value.mean for _, value in line]
    sd = [scale * (value.sd or 0.0) for _, value in line]
    bars: dict[str, Any] = {"color": colour, "linewidth": 1.2, "capsize": 1.5}
    named: dict[str, Any] = {"label": "\n".join(_wrapped(label))}
    if len(line) == 1:
        marker = MARKERS[place % len(MARKERS)]
        beside = 0
        if axes.get_xlabel() == "rounds":  # all at one round: in the middle, right of it, left of it, ...
            beside = (place + 1) // 2 * (1 if place % 2 else -1)
            axes.set_xticks(x)
        moved = ScaledTranslation(POINT_STEP * beside, 0, axes.figure.dpi_scale_trans)  # the axis keeps its numbers
        known = sd if line[0][1].sd is not None else None
        axes.errorbar(x, mean, yerr=known, fmt=marker, markersize=5, transform=axes.transData + moved, **bars, **named)
        axes.update_datalim([(x[0], mean[0] - sd[0]), (x[0], mean[0] + sd[0])])
        axes.autoscale_view()
        return
    seen = "." if len(line) <= MOST_MARKED else ""
    axes.plot(x, mean, color=colour, linestyle=dash, linewidth=1.6, marker=seen, markersize=5, **named)
    if not band:
        behind = x[-1] + 0.015 * (place + 1) * (x[-1] - x[0])
        if line[-1][1].sd is not None:
            axes.errorbar([behind], mean[-1:], yerr=sd[-1:], **bars)
        return
    low, high = ([m + sign * s for m, s in zip(mean, sd, strict=True)] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


@contextmanager
def _drawing(title: str, x: str, y: str) -> Iterator[tuple[Canvas, Axes]]:
    """A canvas with one pair of axes, in the report's style; the global style is left as it was."""
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, AXES_HEIGHT), layout="constrained")
        axes = canvas.add_subplot()
        axes.set_title("\n".join(_wrapped(title)), fontsize=9, loc="left")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if x == "rounds":
            axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        yield canvas, axes


def _wrapped(title: str, width: int = 62) -> list[str]:
    """Lines of a title or label, broken between words."""
    lines = [""]
    for word in title.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _drawn(canvas: Canvas, slug: str, title: str) -> Figure:
    """Save, as high as the legend below the axes needs: it must not press them flat."""
    lines = sum(
        math.ceil(sum(text.get_text().count("\n") + 1 for text in legend.get_texts()) / legend._ncols)  # type: ignore[attr-defined]
        for legend in canvas.legends
    )
    canvas.set_size_inches(WIDTH, AXES_HEIGHT + LINE_HEIGHT * lines)
    svg, png = io.BytesIO(), io.BytesIO()
    canvas.savefig(svg, format="svg", metadata={"Date": None})
    canvas.savefig(png, format="png", dpi=160)
    return Figure(slug, title, svg.getvalue(), png.getvalue())
