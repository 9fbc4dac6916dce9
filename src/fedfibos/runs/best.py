"""A number of a round by the name that ``final.json`` gives it, and the round where it is best.

The first metric of a task is measured on the whole test set (``global_accuracy``) and on each client's own examples
(``local_accuracy``); the others (``macro_f1``) on the whole test set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.common.validation import listed
from fedfibos.runs.measures import Measure, measures_of

LOSS = "loss"


def value_of(record: Mapping[str, Any], path: str) -> float | None:
    """The number in a round's line; None where the round was not evaluated, or has no such number.

    Raises:
        ValueError: Its evaluation has no metric of that name.
    """
    if path == LOSS:
        return record.get(LOSS)  # a round that was skipped has none
    evaluation = record.get("evaluation")
    if evaluation is None:
        return None
    (_, place), *rest = _placed(evaluation, path), *path.split(".")[1:]
    value: Any = evaluation.get(place)
    while rest and value is not None:  # a capacity has a dot of its own: 0.25
        whole = ".".join(rest)
        if isinstance(value, Mapping) and whole in value:
            value, rest = value[whole], []
        else:
            value, rest = (value.get(rest[0]) if isinstance(value, Mapping) else None), rest[1:]
    return float(value) if isinstance(value, int | float) else None


def lower_is_better(record: Mapping[str, Any], path: str) -> bool:
    """Which way is better, as a round's evaluation says of its metrics."""
    return path == LOSS or _placed(record["evaluation"], path)[0].better == "lower"


def _placed(evaluation: Mapping[str, Any], path: str) -> tuple[Measure, str]:
    """The metric that a path is of, and its place in the evaluation."""
    first, *others = measures_of(evaluation)
    head = path.partition(".")[0]
    places = {first.global_key: (first, "global"), first.local_key: (first, "local")}
    places |= {measure.name: (measure, measure.name) for measure in others}
    if head not in places:
        raise ValueError(f"checkpoint.best must be of {listed(places)}, got {head!r}")
    return places[head]


def best_round(records: Sequence[Mapping[str, Any]], path: str) -> int | None:
    """The round whose number is best, the first of equal ones; None where none has it."""
    found = [(value, record) for record in records if (value := value_of(record, path)) is not None]
    if not found:
        return None
    sign = 1.0 if lower_is_better(found[0][1], path) else -1.0
    return int(min(found, key=lambda one: (sign * one[0], one[1]["round"]))[1]["round"])
