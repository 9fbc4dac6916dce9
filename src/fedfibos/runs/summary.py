"""What a run comes to: its accuracies at the end, its best, the mean of its last rounds; its bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedfibos.runs.measures import METRICS, Measure, measures_of


def summarise(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The results of a run: accuracies, bytes, seconds, rejected uploads and (with dropout) those that never came.

    The task's first metric (accuracy, of classification) is in ``global_<metric>`` and ``local_<metric>``, the others
    under their own names. Every one is given at the ``last`` evaluation, as the mean of the last 20 evaluations
    (``last20``) and as the ``best``. An evaluation without the number (no client of that capacity has a test example,
    say) is left out of it.

    Args:
        rounds: The lines of ``rounds.jsonl``.

    Raises:
        ValueError: No round was evaluated.
    """
    evaluations = [record["evaluation"] for record in rounds if "evaluation" in record]
    if not evaluations:
        raise ValueError(f"there must be at least one evaluated round, got none in {len(rounds)} rounds")
    submodels = [evaluation["global"]["submodels"] for evaluation in evaluations]
    local = [evaluation["local"] for evaluation in evaluations]
    first, *others = measures_of(evaluations[-1])
    adjusted = [entry["adjusted"] for entry in local if "adjusted" in entry]  # older records have none
    return {
        **({METRICS: evaluations[-1][METRICS]} if METRICS in evaluations[-1] else {}),
        first.global_key: {
            "full": _curve(first, [evaluation["global"]["full"] for evaluation in evaluations]),
            "submodels": {key: _curve(first, [s.get(key) for s in submodels]) for key in _keys(submodels)},
        },
        **_others(evaluations, others),
        first.local_key: {**_local(first, local), **({"adjusted": _local(first, adjusted)} if adjusted else {})},
        "bytes": {way: sum(record["bytes"][way] for record in rounds) for way in ("down", "up")},
        "seconds": round(sum(record["seconds"] for record in rounds), 3),
        "rejected": sum(len(record["rejected"]) for record in rounds),
        **({"silent": sum(len(record["silent"]) for record in rounds)} if "silent" in rounds[0] else {}),
        **({"epsilon": rounds[-1]["epsilon"]} if "epsilon" in rounds[-1] else {}),
    }


def _others(evaluations: Sequence[Mapping[str, Any]], measures: Sequence[Measure]) -> dict[str, Any]:
    """Curves of the metrics after the first; without those that older records have not."""
    curves: dict[str, Any] = {}
    for measure in measures:
        known = [evaluation[measure.name] for evaluation in evaluations if measure.name in evaluation]
        if not known:
            continue
        submodels = [score["submodels"] for score in known]
        curves[measure.name] = {
            "full": _curve(measure, [score["full"] for score in known]),
            "submodels": {key: _curve(measure, [s.get(key) for s in submodels]) for key in _keys(submodels)},
        }
    shares = [evaluation["majority_share"] for evaluation in evaluations if "majority_share" in evaluation]
    return {**curves, **({"majority_share": shares[-1]} if shares else {})}


def _local(measure: Measure, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Curves of a local accuracy: mean over clients, and of each capacity."""
    by_capacity = [entry["by_capacity"] for entry in entries]
    return {
        "mean": _curve(measure, [entry["mean"] for entry in entries]),
        "by_capacity": {key: _curve(measure, [s.get(key) for s in by_capacity]) for key in _keys(by_capacity)},
    }


def _curve(measure: Measure, values: Sequence[float | None]) -> dict[str, float | None]:
    """Last, mean of the last 20, and best of a metric's evaluations."""
    known = [value for value in values if value is not None]
    if not known:
        return {"last": None, "last20": None, "best": None}
    tail = known[-20:]
    return {"last": known[-1], "last20": sum(tail) / len(tail), "best": measure.best(known)}


def _keys(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys of all tables, in the order of their first appearance."""
    return list(dict.fromkeys(key for table in tables for key in table))
