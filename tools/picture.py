"""Draw docs/accuracy.svg from the records of CIFAR-10: ``python tools/picture.py`` (``--check``: only compare).

Accuracy of the submodels by their capacity, one line a method, in the cell in which every method was run. The drawing
is written out by hand, so that it is the same with any version of any library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from evidence.records import CAPACITIES, MAIN, Study, load_nested

from fedfibos.common.statistics import spread

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "accuracy.svg"
LINES = {
    "channels-nested": ("FedFIbOS on channels", "#d55e00"),
    "fedfibos": ("FedFIbOS", "#0072b2"),
    "algorithm1": ("FedFIbOS, Algorithm 1", "#7a5cc9"),
    "fiarse": ("FIARSE", "#009e73"),
    "heterofl": ("HeteroFL", "#e69f00"),
    "fedrolex": ("FedRolex", "#56b4e9"),
    "fedbrb": ("FedBRB", "#cc79a7"),
}
SEEDS = (0, 1, 2)
"""Those that every line was run with."""
NAMES = {"1.0": "1", "0.5": "1/2", "0.25": "1/4", "0.125": "1/8", "0.0625": "1/16"}
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 170, 44, 48
HIGHEST, CHANCE = 60, 10
APART = 15
"""Pixels between the labels of two lines, at least."""


def picture(study: Study) -> str:
    """The drawing as SVG."""
    drawn = {method: _accuracies(study, method) for method in LINES if method in study.cells[MAIN]}
    parts = [_head(), *_axes(), *(_line(points, LINES[method][1]) for method, points in drawn.items())]
    return "\n".join([*parts, *_labels({method: points[-1][0] for method, points in drawn.items()}), "</svg>", ""])


def caption(study: Study) -> str:
    """What the picture shows, from the records' own settings."""
    records = study.cells[MAIN]["fedfibos"]
    one = records[0].experiment
    classes = one.data.partition.classes_per_client
    return (
        f"CIFAR-10 with the model {one.model.name}. Each of {one.federation.clients} clients has {classes} of the 10 "
        f"classes. Their capacities are the {MAIN[1]} ones of the FedFIbOS paper. {one.federation.cohort} clients "
        f"train in each of {one.federation.rounds} rounds. Dots and bars show the mean and the standard deviation of "
        f"{len(SEEDS)} seeds"
    )


def _accuracies(study: Study, method: str) -> list[tuple[float, float]]:
    """Mean and standard deviation in per cent, from the smallest capacity to 1."""
    found = []
    for capacity in reversed(CAPACITIES):
        by_seed = study.numbers(MAIN, method, "global_accuracy", "submodels", capacity, "last")
        over_seeds = spread(by_seed[seed] for seed in SEEDS)
        assert over_seeds is not None
        found.append((100 * over_seeds.mean, 100 * (over_seeds.sd or 0.0)))
    return found


def _x(position: int) -> float:
    return LEFT + position * (WIDTH - LEFT - RIGHT) / (len(CAPACITIES) - 1)


def _y(percent: float) -> float:
    return HEIGHT - BOTTOM - percent * (HEIGHT - TOP - BOTTOM) / HIGHEST


def _head() -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13" fill="#222">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n'
        f'<text x="{LEFT}" y="22" font-weight="bold">Accuracy of each class of device on all test images, %</text>'
    )


def _axes() -> list[str]:
    right = _x(len(CAPACITIES) - 1)
    lines = []
    for percent in range(0, HIGHEST + 1, 20):
        y = _y(percent)
        lines.append(f'<path d="M{LEFT} {y:.1f}H{right:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent}</text>')
    lines.append(f'<path d="M{LEFT} {_y(CHANCE):.1f}H{right:.1f}" stroke="#888" stroke-dasharray="4 4"/>')
    lines.append(f'<text x="{LEFT + 4}" y="{_y(CHANCE) + 15:.1f}" fill="#666">chance</text>')
    for position, capacity in enumerate(reversed(CAPACITIES)):
        lines.append(f'<text x="{_x(position):.1f}" y="{HEIGHT - 28}" text-anchor="middle">{NAMES[capacity]}</text>')
    middle = (LEFT + right) / 2
    lines.append(
        f'<text x="{middle:.1f}" y="{HEIGHT - 9}" text-anchor="middle">share of the model that it holds</text>'
    )
    return lines


def _line(points: list[tuple[float, float]], colour: str) -> str:
    """Means joined, with a bar of one standard deviation each way."""
    at = [(_x(n), mean, sd) for n, (mean, sd) in enumerate(points)]
    path = "M" + "L".join(f"{x:.1f} {_y(mean):.1f}" for x, mean, _ in at)
    bars = "".join(f"M{x:.1f} {_y(mean - sd):.1f}V{_y(mean + sd):.1f}" for x, mean, sd in at)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{_y(mean):.1f}" r="3.5"/>' for x, mean, _ in at)
    return (
        f'<g fill="{colour}" stroke="{colour}"><path d="{path}" fill="none" stroke-width="2"/>'
        f'<path d="{bars}" opacity="0.5"/>{dots}</g>'
    )


def _labels(ends: dict[str, float]) -> list[str]:
    """The methods' names beside the ends of their lines, far enough apart to be read."""
    lines, lowest = [], 0.0
    for method, percent in sorted(ends.items(), key=lambda end: -end[1]):
        lowest = max(_y(percent) + 4, lowest + APART)
        name, colour = LINES[method]
        lines.append(f'<text x="{_x(len(CAPACITIES) - 1) + 12:.1f}" y="{lowest:.1f}" fill="{colour}">{name}</text>')
    return lines


def main() -> int:
    """Write or check."""
    wanted = picture(load_nested(ROOT / "results" / "small"))
    if "--check" in sys.argv[1:]:
        current = PICTURE.read_text(encoding="utf-8") == wanted
        if not current:
            print(f"{PICTURE.name} is not current; run: python tools/picture.py", file=sys.stderr)
        return int(not current)
    PICTURE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
