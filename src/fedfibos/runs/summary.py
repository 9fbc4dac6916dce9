"""What a run comes to: its accuracies at the end, its best, the mean of its last rounds; its bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def summarise(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The results of a run: accuracies, bytes, seconds, rejected uploads and (with dropout) those that never came.

    Every accuracy is given at the ``last`` evaluation, as the mean of the last 20 evaluations (``last20``) and as the
    ``best``. An evaluation without the number (no client of that capacity has a test example, say) is left out of it.

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
    adjusted = [entry["adjusted"] for entry in local if "adjusted" in entry]  # older records have none
    return {
        "global_accuracy": {
            "full": _curve([evaluation["global"]["full"] for evaluation in evaluations]),
            "submodels": {key: _curve([s.get(key) for s in submodels]) for key in _keys(submodels)},
        },
        **_by_class(evaluations),
        "local_accuracy": {**_local(local), **({"adjusted": _local(adjusted)} if adjusted else {})},
        "bytes": {way: sum(record["bytes"][way] for record in rounds) for way in ("down", "up")},
        "seconds": round(sum(record["seconds"] for record in rounds), 3),
        "rejected": sum(len(record["rejected"]) for record in rounds),
        **({"silent": sum(len(record["silent"]) for record in rounds)} if "silent" in rounds[0] else {}),
    }


def _by_class(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Curves of what is measured class by class; nothing of older records, which have none."""
    known = [evaluation for evaluation in evaluations if "majority_share" in evaluation]
    if not known:
        return {}
    curves = {}
    for score in ("balanced_accuracy", "macro_f1"):
        submodels = [evaluation[score]["submodels"] for evaluation in known]
        curves[score] = {
            "full": _curve([evaluation[score]["full"] for evaluation in known]),
            "submodels": {key: _curve([s.get(key) for s in submodels]) for key in _keys(submodels)},
        }
    return {**curves, "majority_share": known[-1]["majority_share"]}


def _local(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Curves of a local accuracy: mean over clients, and of each capacity."""
    by_capacity = [entry["by_capacity"] for entry in entries]
    return {
        "mean": _curve([entry["mean"] for entry in entries]),
        "by_capacity": {key: _curve([s.get(key) for s in by_capacity]) for key in _keys(by_capacity)},
    }


def _curve(accuracies: Sequence[float | None]) -> dict[str, float | None]:
    """Last, mean of the last 20, and best of an accuracy's evaluations."""
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    if not known:
        return {"last": None, "last20": None, "best": None}
    tail = known[-20:]
    return {"last": known[-1], "last20": sum(tail) / len(tail), "best": max(known)}


def _keys(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys of all tables, in the order of their first appearance."""
    return list(dict.fromkeys(key for table in tables for key in table))
