"""Settings that two axes of a study both write: the later one holds, and the names of the cells still say both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from fedfibos.common.dotted_keys import flat


def replaced(grid: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """A line for every setting of a variant that a variant of a later axis replaces by another value.

    Args:
        grid: Axis -> variant -> tables of overrides.
    """
    for (axis, variants), (later, others) in itertools.combinations(grid.items(), 2):
        for (name, mine), (other, its) in itertools.product(variants.items(), others.items()):
            for key in _in_both(flat(mine), flat(its)):
                yield f"{later} {other!r} replaces {key} of {axis} {name!r}"


def _in_both(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Keys of the first that the second sets otherwise, as a whole or in part."""
    for key, value in first.items():
        if any(
            f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")
            for other, new in second.items()
            if (other, new) != (key, value)
        ):
            yield key
