"""Methods against one of them, seed by seed: the difference, where it lies, and what that settles.

Runs of one seed share partition, fleet, cohorts and initial values, so most of what spreads over seeds is common to all
methods and leaves their difference; two means with overlapping spreads may well differ clearly, or the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedfibos.common.statistics import Spread, spread
from fedfibos.report.groups import Group, Problem
from fedfibos.report.rival import rival
from fedfibos.report.table import Cell, Table, row
from fedfibos.runs.made import DEALT, INITIAL
from fedfibos.runs.measures import ACCURACY, Measure

MARGIN = 0.01
"""Difference of an accuracy up to which two methods are equal for all that matters: one point."""

SUBMODELS = "submodels"
"""The measure that comes first: the mean over capacities, which no choice of a capacity favours."""


class Verdict(StrEnum):
    """What a difference and its 95 % interval settle."""

    ahead = "ahead"
    behind = "behind"
    equal = "equal within 1 point"
    open = "not settled"


def verdict(difference: Spread, measure: Measure = ACCURACY) -> Verdict:
    """Equal: the interval lies within the margin on both sides; ahead or behind: it leaves 0 out; else not settled.

    One seed has no interval and settles nothing. Of a metric that is no share nothing is called equal: what little
    matters there depends on its unit.
    """
    interval = difference.interval()
    if interval is None:
        return Verdict.open
    low, high = interval
    if measure.share and low >= -MARGIN and high <= MARGIN:
        return Verdict.equal
    if low > 0:
        return Verdict.ahead
    return Verdict.behind if high < 0 else Verdict.open


@dataclass(frozen=True)
class Line:
    """One method against the reference.

    Attributes:
        group: The method.
        differences: Measure -> how far it is ahead of the reference, over the seeds that both have; without the
            measures that no common seed has.
    """

    group: Group
    differences: Mapping[str, Spread]

    @property
    def seeds(self) -> int:
        """Behind each number, at most."""
        return max(found.n for found in self.differences.values())


@dataclass(frozen=True)
class Answer:
    """All methods of a problem against one of them.

    Attributes:
        problem: The methods.
        reference: The one that the others are compared with.
        lines: The others, in the problem's order.
        measures: The names of what is compared, the first one first.
    """

    problem: Problem
    reference: Group
    lines: tuple[Line, ...]
    measures: tuple[str, ...]


def measures(problem: Problem) -> dict[str, tuple[str, ...]]:
    """What methods are compared by: name -> where in ``final.json``. The mean over capacities comes first."""
    whole, local = "global", "local"
    capacities = sorted(problem.experiment.federation.capacities, reverse=True)  # none where devices have their own
    return {
        SUBMODELS: (whole, "submodels", "mean"),
        "full model": (whole, "full"),
        **{f"γ = {c:g}": (whole, "submodels", str(c)) for c in capacities if c < 1},
        "local": (local, "mean"),
        "local, adjusted": (local, "adjusted", "mean"),
    }


def answer(problem: Problem, against: str | None = None, summary: str = "last") -> Answer | None:
    """Every method against one of them; None where there is nothing to compare.

    Args:
        problem: The methods.
        against: The one; see :func:`fedfibos.report.rival.rival`.
        summary: ``last``, ``last20`` or ``best``: what is taken of a run's evaluations.
    """
    base = rival(problem, against)
    if base is None:
        return None
    lines = []
    for group in problem.groups:
        found = {name: difference(group, base, *keys, summary) for name, keys in measures(problem).items()}
        known = {name: value for name, value in found.items() if value is not None}
        if group is not base and known:
            lines.append(Line(group, known))
    names = tuple(name for name in measures(problem) if any(name in line.differences for line in lines))
    return Answer(problem, base, tuple(lines), names) if lines else None


def difference(one: Group, other: Group, *keys: str) -> Spread | None:
    """How far ``one`` is ahead of ``other`` over the seeds that both have, of an entry of ``final.json``.

    The difference of a metric of which more is better, minus that of one of which less is.

    Seeds in which the two runs are known to have begun with other examples or values are no pairs.
    """
    first, second = one.by_seed(*keys), other.by_seed(*keys)
    seeds = sorted(first.keys() & second.keys())
    for key in (DEALT, INITIAL):
        mine, theirs = one.began(key), other.began(key)
        seeds = [n for n in seeds if mine[n] is None or theirs[n] in (None, mine[n])]
    sign = one.records[0].measure.sign
    return spread(sign * (first[seed] - second[seed]) for seed in seeds)


def sentence(line: Line) -> str:
    """One method in words: where it is ahead, behind, equal or not settled; the first measure with its numbers."""
    (name, value), *rest = line.differences.items()
    measure = line.group.records[0].measure
    counted = f"{line.seeds} seed{'s' if line.seeds > 1 else ''}"
    first = verdict(value, measure)
    said = [f"{first} {_where([name], measure)} ({points(value, measure)}; {counted})"]
    by_verdict: dict[Verdict, list[str]] = {}
    for other, found in rest:
        by_verdict.setdefault(verdict(found, measure), []).append(other)
    if list(by_verdict) == [first]:
        said.append("in every other measure too")
    else:
        said += [f"{found} {_where(by_verdict[found], measure)}" for found in Verdict if found in by_verdict]
    return f"{line.group.label}: {'; '.join(said)}."


WHERE = {
    SUBMODELS: "over the submodels",
    "full model": "in the full model",
    "local": "in local {}",
    "local, adjusted": "in adjusted local {}",
}
"""Measure -> what a sentence calls it; of a capacity ``at γ = 0.5``."""


def _where(names: Sequence[str], measure: Measure) -> str:
    """Measures in a sentence: ``in the full model, at γ = 0.5, 0.25 and in local accuracy``."""
    places: list[str] = []
    for name in names:
        if name in WHERE:
            places.append(WHERE[name].format(measure.words))
        elif places and places[-1].startswith("at γ = "):
            places[-1] += f", {name.removeprefix('γ = ')}"
        else:
            places.append(f"at {name}")
    return " and ".join(filter(None, (", ".join(places[:-1]), places[-1])))


def points(value: Spread, measure: Measure = ACCURACY) -> str:
    """``+1.4 points, −0.2 to +3.0``; of one seed without the interval."""
    interval = value.interval()
    text = signed(value.mean, measure) + (" points" if measure.share else "")
    return text if interval is None else f"{text}, {signed(interval[0], measure)} to {signed(interval[1], measure)}"


def signed(difference: float, measure: Measure = ACCURACY) -> str:
    """A difference, of shares in points: ``+1.4``, ``−0.2``, ``0.0``; of others as they are."""
    if not measure.share:
        return f"{difference:+.3g}".replace("-", "−") if difference else "0"
    text = f"{100 * difference:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def differences(answer: Answer, slug: str, summary: str) -> Table:
    """Every method minus the reference, with 95 % intervals; bold where it is ahead or behind.

    Args:
        answer: The methods.
        slug: Names the table's file.
        summary: What is taken of a run's evaluations, in words.
    """
    rows, measure = [], answer.problem.measure
    for line in answer.lines:
        cells = [_cell(line.differences.get(name), measure) for name in answer.measures]
        rows.append(row(line.group.label, str(line.seeds), *cells))
    lower = measure.sign < 0
    unit = "Percentage points" if measure.share else f"Difference of {measure.words}"
    unit += f", how far it is below that of {answer.reference.label}, which is better," if lower else ""
    equal = "“=”: it lies within ±1 point, the two are equal. " if measure.share else ""
    note = (
        f"{unit} with 95 % intervals (Student's t) over the seeds that both have; + is in favour of the row. "
        f"Bold: the interval leaves 0 out, the row is ahead or behind. {equal}"
        "The others are not settled. Each interval stands alone: of twenty numbers without any difference about one "
        "is bold."
    )
    if any(line.seeds < 2 for line in answer.lines):
        note += " One seed (n = 1) tells nothing."
    reference = answer.reference.label
    title = f"Differences from {reference}, seed by seed, {summary}: {answer.problem.label}"
    headings = (f"below {reference}" if lower else f"minus {reference}", "seeds", *answer.measures)
    return Table(f"differences-{slug}", title, headings, tuple(rows), note)


def _cell(value: Spread | None, measure: Measure) -> Cell:
    if value is None:
        return Cell("–")
    interval = value.interval()
    if interval is None:
        return Cell(f"{signed(value.mean, measure)} (n = 1)")
    found = verdict(value, measure)
    low, high = (signed(end, measure) for end in interval)
    text = f"{signed(value.mean, measure)} [{low}, {high}]"
    return Cell(f"= {text}" if found is Verdict.equal else text, bold=found in (Verdict.ahead, Verdict.behind))
