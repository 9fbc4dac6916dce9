"""Methods against one of them, seed by seed.

Runs of one seed share partition, fleet, cohorts and initial values, so most of what spreads over seeds is common to all
methods and leaves their difference; two means with overlapping spreads may well be told apart, or the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedfibos.report.groups import Group, Problem, file_names
from fedfibos.report.table import Cell, Table, row
from fedfibos.report.tables import NONE, headline
from fedfibos.runs.record import DEALT, INITIAL, RecordError
from fedfibos.spread import Spread, spread


def difference(one: Group, other: Group, *keys: str) -> Spread | None:
    """``one`` minus ``other`` over the seeds that both have, of an entry of ``final.json``.

    Seeds in which the two runs are known to have begun with other examples or values are no pairs.
    """
    first, second = one.by_seed(*keys), other.by_seed(*keys)
    seeds = sorted(first.keys() & second.keys())
    for key in (DEALT, INITIAL):
        mine, theirs = one.began(key), other.began(key)
        seeds = [n for n in seeds if mine[n] is None or theirs[n] in (None, mine[n])]
    return spread(first[seed] - second[seed] for seed in seeds)


def differences(problem: Problem, slug: str, against: str | None = None) -> Table | None:
    """Every method minus one of them, bold where seeds tell the two apart; None where there is nothing to compare.

    Args:
        problem: The methods.
        slug: Names the table's file.
        against: What to subtract: a row's label, the name of its files, of its method or of its class. Left out it is
            FedFIbOS where there is one, else the last method of the results table; in its first row.
    """
    base = rival(problem, against)
    if base is None:
        return None
    paths = headline(problem)
    rows, untold = [], 0
    for group in problem.groups:
        found = [difference(group, base, *path, "last") for path in paths.values()]
        if group is base or not any(found):
            continue
        seeds = max(value.n for value in found if value is not None)
        untold += seeds < 2
        rows.append(row(group.label, str(seeds), *map(_cell, found)))
    if not rows:
        return None
    note = (
        "Percentage points, mean ± sd over the seeds that both have; + is in favour of the row. Bold: a paired t-test "
        "tells the two apart at the 95 % level. Each test stands alone: of twenty numbers without any difference about "
        "one is bold."
    )
    if untold:
        note += " One seed (n = 1) tells nothing."
    title = f"Differences from {base.label}, seed by seed: {problem.label}"
    return Table(f"differences-{slug}", title, (f"minus {base.label}", "seeds", *paths), tuple(rows), note)


def rival(problem: Problem, against: str | None) -> Group | None:
    """The method that the others are compared with; None where the problem has it not."""
    if against is None:
        names = [group.experiment.method.name for group in problem.groups]
        return problem.groups[names.index("fedfibos" if "fedfibos" in names else names[-1])]
    for group, name in zip(problem.groups, file_names(problem), strict=True):
        if against in (group.label, name):
            return group
    named = [(group, group.experiment.method.name) for group in problem.groups]
    return next((group for group, name in named if against in (name, name.rpartition(":")[2])), None)


def check_rival(problems: Sequence[Problem], against: str | None) -> None:
    """Refuse a name that no problem knows.

    Raises:
        RecordError: With the names that there are.
    """
    if not problems or any(rival(problem, against) is not None for problem in problems):
        return
    names = ", ".join(dict.fromkeys(name for problem in problems for name in file_names(problem)))
    raise RecordError(f"no method of these runs is {against!r}: there are {names}")


def _cell(value: Spread | None) -> Cell:
    if value is None:
        return Cell(NONE)
    return Cell(value.signed(100), bold=value.clear(1) or value.clear(-1))
