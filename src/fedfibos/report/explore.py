"""The accuracy curves of a report as a page to explore: hover, zoom, hide a line, a logarithmic axis of bytes."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from fedfibos.common.extras import extra
from fedfibos.report.figures import Line, accuracy_panels
from fedfibos.report.groups import Problem
from fedfibos.report.looks import Look
from fedfibos.report.tables import written
from fedfibos.runs.measures import Measure

with extra("report"):
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

PANEL, LEGEND = 300, 34
"""Height of a panel, and of a line of the legend, pixels."""

CONFIG = {"responsive": True, "displayModeBar": False}  # the mouse zooms; on a telephone the bar would hide the buttons

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fedfibos report: explore</title>
<style>
body { margin: 0 auto; max-width: 70rem; padding: 1rem clamp(.4rem, 2vw, 2rem); color: #1b2026;
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .2rem; overflow-wrap: anywhere; }
p { max-width: 46rem; color: #5b6470; font-size: .9rem; }
</style>
</head>
<body>
<h1>Explore the curves</h1>
<p>Click a name to hide its line, twice to see it alone. Drag to zoom, double-click to go back. Lines are means over
seeds, bands are ± one standard deviation.</p>
"""


def explore_page(problems: Sequence[tuple[str, Problem]], looks: Mapping[str, Look]) -> str:
    """The page: all in one file, nothing is loaded from elsewhere.

    Args:
        problems: (name for links, problem), in the order of the report.
        looks: Label of a method -> how it is drawn.
    """
    parts = [HEAD]
    for place, (slug, problem) in enumerate(problems):
        parts.append(f'<h2 id="{slug}">{html.escape(problem.label)}</h2>')
        parts.append(
            explored(problem, looks).to_html(
                full_html=False, include_plotlyjs=place == 0, config=CONFIG, div_id=f"curves-{slug}"
            )
        )
    return "\n".join([*parts, "</body>", "</html>", ""])


def explored(problem: Problem, looks: Mapping[str, Look]) -> go.Figure:
    """The panels of :func:`fedfibos.report.figures.accuracy_curves`, one below the other, with one legend."""
    measure = problem.measure
    panels = accuracy_panels(measure)
    figure = make_subplots(rows=len(panels), cols=1, vertical_spacing=0.09)
    for row, (y, x, read, line_of) in enumerate(panels, 1):
        for group in problem.groups:
            for trace in _traces(line_of(group, read), group.label, looks[group.label], measure, legend=row == 1):
                figure.add_trace(trace, row=row, col=1)
        figure.update_xaxes(title_text=x, row=row, col=1)
        figure.update_yaxes(title_text=y, row=row, col=1)
    logarithmic = f"xaxis{len(panels)}.type"
    figure.update_layout(
        template="plotly_white",
        height=PANEL * len(panels) + LEGEND * len(problem.groups),
        margin={"l": 55, "r": 10, "t": 40, "b": 10},
        hovermode="closest",
        legend={"orientation": "h", "yanchor": "top", "y": -0.08, "x": 0},
        updatemenus=[
            {
                "type": "buttons",
                "direction": "right",
                "x": 0,
                "y": 1.06,
                "xanchor": "left",
                "buttons": [
                    {"label": f"bytes: {name} axis", "method": "relayout", "args": [{logarithmic: kind}]}
                    for name, kind in (("linear", "linear"), ("log", "log"))
                ],
            }
        ],
    )
    return figure


def _traces(line: Line, label: str, look: Look, measure: Measure, *, legend: bool) -> list[go.Scatter]:
    """Mean and band of one method in one panel; they hide and show together."""
    if not line:
        return []
    x = [at for at, _ in line]
    mean = [measure.scale * value.mean for _, value in line]
    sd = [measure.scale * (value.sd or 0.0) for _, value in line]
    low, high = ([m + sign * s for m, s in zip(mean, sd, strict=True)] for sign in (-1, 1))
    unit = " %" if measure.share else ""
    said = [f"{written(value, measure)}{unit}, n = {value.n}" for _, value in line]
    band = go.Scatter(
        x=[*x, *reversed(x)],
        y=[*high, *reversed(low)],
        fill="toself",
        fillcolor=look.colour,
        opacity=0.15,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=label,
        showlegend=False,
    )
    curve = go.Scatter(
        x=x,
        y=mean,
        mode="lines+markers",
        line={"color": look.colour, "dash": _dash(look), "width": 2},
        marker={"size": 5},
        name=label,
        text=said,
        hovertemplate="%{text}<br>%{x:,.6~g}<extra>%{fullData.name}</extra>",
        legendgroup=label,
        showlegend=legend,
    )
    return [band, curve] if len(line) > 1 else [curve]


def _dash(look: Look) -> str:
    """The line's dashes by plotly's names."""
    names = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
    return names[look.dash] if isinstance(look.dash, str) else ",".join(f"{length:g}px" for length in look.dash[1])
