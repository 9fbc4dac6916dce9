"""Paired differences: one row a comparison, one column a measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evidence.records import FULL, SMALLEST, SUBMODELS, Cell, Study
from evidence.tables import TITLES, table
from evidence.words import interval, verdict
from fedfibos.common.statistics import Spread

PLACES: Mapping[str, Sequence[str]] = {"full model": FULL, "mean of the submodels": SUBMODELS, "smallest": SMALLEST}


@dataclass(frozen=True)
class Comparison:
    """``one`` minus ``other``.

    Attributes:
        said: Its name in the table; in ``side_by_side`` the setting.
        study: Where the runs are.
        one: A method of the study.
        other: What it is compared with.
        cell: Split and capacity mix; None: the mean over all cells that have both, seed by seed.
    """

    said: str
    study: Study
    one: str
    other: str
    cell: Cell | None = None

    def of(self, keys: Sequence[str]) -> Spread | None:
        """The difference of a measure, over seeds."""
        if self.cell is None:
            return self.study.pooled(self.one, self.other, *keys)
        return self.study.difference(self.cell, self.one, self.other, *keys)


def comparisons(
    head: str, rows: Sequence[Comparison], places: Mapping[str, Sequence[str]] = PLACES, judged: str | None = None
) -> str:
    """The table.

    Args:
        head: What the first column names.
        rows: The comparisons; those without a common run are left out.
        places: Column -> the measure's keys in ``final.json``.
        judged: The column, a mean, whose verdict is written out at the end of the row; None: none.
    """
    lines = [[head, "pairs", *places, *(["verdict on the mean"] if judged else [])]]
    for row in rows:
        found = {place: row.of(keys) for place, keys in places.items()}
        pairs = max((value.n for value in found.values() if value is not None), default=0)
        if pairs:
            said = [verdict(found[judged])] if judged else []
            lines.append([row.said, str(pairs), *map(_bold, found.values()), *said])
    return table(lines)


def between(study: Study, cell: Cell, *pairs: tuple[str, str]) -> list[Comparison]:
    """A comparison of each pair of methods in a cell, for ``side_by_side``."""
    return [Comparison(f"{study.data}, {study.where(cell)}", study, one, other, cell) for one, other in pairs]


def side_by_side(rows: Sequence[Comparison]) -> str:
    """The table of ``comparisons`` with a column for the setting, one for the method and one for what it is minus."""
    lines = [["setting", "method", "minus", "pairs", *PLACES, "verdict on the mean"]]
    for row in rows:
        found = {place: row.of(keys) for place, keys in PLACES.items()}
        pairs = max((value.n for value in found.values() if value is not None), default=0)
        if pairs:
            judged = verdict(found["mean of the submodels"])
            names = [TITLES[row.one], TITLES[row.other]]
            lines.append([row.said, *names, str(pairs), *map(_bold, found.values()), judged])
    return table(lines, words=3)


def _bold(value: Spread | None) -> str:
    text = interval(value)
    return f"**{text}**" if verdict(value) in ("ahead", "behind") else text
