"""Colour, dash and marker of every method and variant: the same in all figures and on the page of one report."""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fedfibos.report.groups import Group

Dash = str | tuple[float, tuple[float, ...]]

COLOURS = {
    "fedavg": "#7f7f7f",
    "heterofl": "#e69f00",
    "fedrolex": "#56b4e9",
    "fedbrb": "#cc79a7",
    "fiarse": "#009e73",
    "fedfibos": "#0072b2",
    "fedfibos “algorithm1”": "#7a5cc9",
    "fedfibos-channels": "#d55e00",
}
"""Of the methods' first versions, and of a preset that is a reading of its own (Okabe and Ito's palette, told apart
by colour-blind readers)."""

OWN = ("#332288", "#882255", "#117733", "#999933", "#44aa99", "#aa4499", "#661100", "#222222")
"""Of users' own methods, in the order in which they appear (of Tol's muted palette)."""

VARIANTS = ("#a6324a", "#5f8a1f", "#b8860b", "#17888f", "#c2569b", "#5a5f9e", "#8a5a35", "#3d7a4f")
"""Of a method's further versions; every one in the report has a colour of its own until they run out."""

DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.", (0.0, (8.0, 2.0)), (0.0, (6.0, 2.0, 1.0, 2.0)), (0.0, (3.0, 4.0)))
MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Look:
    """How one method or variant is drawn.

    Attributes:
        colour: ``#rrggbb``.
        dash: Of its lines, as matplotlib takes it.
        marker: Of its points.
    """

    colour: str
    dash: Dash
    marker: str


def looks(groups: Iterable[Group]) -> dict[str, Look]:
    """A look for every label of a report's groups: no two have the same.

    The version of a method with the fewest settings of its own has the method's colour and a solid line.
    """
    found: dict[str, Look] = {}
    seen: dict[str, int] = {}
    own, variants = itertools.cycle(OWN), _colours()
    for group in sorted(groups, key=lambda group: group.label.count(",")):
        if group.label in found:
            continue
        method = group.experiment.method
        name = method.name if method.preset is None else f"{method.name} “{method.preset}”"
        kind = name if name in COLOURS else method.name
        place = seen.get(kind, 0)
        seen[kind] = place + 1
        colour = next(variants) if place else COLOURS.get(kind) or next(own)
        found[group.label] = Look(colour, DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])
    return found


def _colours() -> Iterator[str]:
    """Colours for variants: the palette, then the same darker and lighter, and so on."""
    for darker in itertools.cycle((1.0, 0.62, 1.35)):
        for colour in VARIANTS:
            yield _shaded(colour, darker)


def _shaded(colour: str, by: float) -> str:
    """The colour with its lightness multiplied."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    return "#" + "".join(f"{round(255 * c):02x}" for c in colorsys.hls_to_rgb(hue, min(0.8, light * by), saturation))
