"""The method of a problem that the others are compared with, and the names that it goes by."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fedfibos.config.choices import MethodChoice
from fedfibos.report.groups import Group, Problem, file_names
from fedfibos.runs.reading import RecordError


def rival(problem: Problem, against: str | None) -> Group | None:
    """The method that the others are compared with; None where the problem has it not.

    Args:
        problem: The methods.
        against: A row's label, the name of its files, the variant of a study (its runs' folder), or the name of a
            method or its class, which is its first row. Left out it is the FedFIbOS with the fewest settings away from
            the method's defaults, of equal ones the first row; without FedFIbOS the last method of the results table.
    """
    groups = problem.groups
    if against is None:
        ours = [group for group in groups if group.experiment.method.name == "fedfibos"]
        return min(ours, key=_away_from_defaults) if ours else _first_of(groups, groups[-1].experiment.method.name)
    for group, name, folders in zip(groups, file_names(problem), variants(groups), strict=True):
        if against in (group.label, name, *folders):
            return group
    return _first_of(groups, against)


def variants(groups: Sequence[Group]) -> list[list[str]]:
    """What tells each group's run directories from the others': folders, or several in a row; the shortest first.

    In a study with one axis of methods that is the variant's name; with a second axis of rates ``fiarse/0.05``.
    """
    paths = [{path for record in group.records for path in _paths(record.folders)} for group in groups]
    found = []
    for i, mine in enumerate(paths):
        own = mine - {path for j, theirs in enumerate(paths) if j != i for path in theirs}
        found.append(["/".join(path) for path in sorted(own, key=lambda path: (len(path), path))])
    return found


def check_rival(problems: Sequence[Problem], against: str | None) -> None:
    """Refuse a name that no problem knows.

    Raises:
        RecordError: With the names that there are.
    """
    if not problems or any(rival(problem, against) is not None for problem in problems):
        return
    names: dict[str, None] = {}
    for problem in problems:
        names |= dict.fromkeys(file_names(problem))
    for problem in problems:
        names |= dict.fromkeys(
            folders[0] for folders in variants(problem.groups) if folders and len(problem.groups) > 1
        )
    raise RecordError(f"no method of these runs is {against!r}: there are {', '.join(names)}")


def _first_of(groups: Sequence[Group], name: str) -> Group | None:
    named = [(group, group.experiment.method.name) for group in groups]
    return next((group for group, method in named if name in (method, method.rpartition(":")[2])), None)


def _away_from_defaults(group: Group) -> int:
    """How many of the method's settings are not what they are when nothing is set."""
    method = group.experiment.method
    default = MethodChoice(method.name).settings
    return sum(value != default[key] for key, value in method.settings.items())


def _paths(folders: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Folders, alone and in a row."""
    for first, last in itertools.combinations(range(len(folders) + 1), 2):
        yield tuple(folders[first:last])
