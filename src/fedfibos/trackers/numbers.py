"""The numbers of a round's line that a tracker draws as curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedfibos.common.dotted_keys import flat

LEFT_OUT = (
    "participants",
    "silent",
    "capacities",
    "clients",
    "bytes_by_client",
    "keys",
    "skipped",
    "left_out",
    "refused",
    "late",
    "measured",
)
"""Of a line: what is of single clients."""

DETAILS = ("metrics", "kept_shares")
"""Of an evaluation: what is no curve, or hundreds."""


def numbers_in(record: Mapping[str, Any]) -> dict[str, float]:
    """``loss``, ``bytes/down``, ``evaluation/global/submodels/0.5``, ...: everything that is one number.

    Args:
        record: A line of ``rounds.jsonl``.
    """
    kept: dict[str, Any] = {key: value for key, value in record.items() if key not in (*LEFT_OUT, "round")}
    kept["rejected"] = len(record.get("rejected", ()))
    if "dropped" in record:
        kept["dropped"] = len(record["dropped"])
    if isinstance(evaluation := kept.get("evaluation"), Mapping):
        kept["evaluation"] = {key: value for key, value in evaluation.items() if key not in DETAILS}
    found = {}
    for key, value in _joined(kept).items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found[key] = float(value)
    return found


def _joined(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _joined(value, f"{prefix}{key}/")
        else:
            found[f"{prefix}{key}"] = value
    return found


def settings_in(settings: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """An experiment's settings by dotted key, as trackers hold them."""
    return {
        key: value if isinstance(value, str | int | float | bool) else str(value)
        for key, value in flat(settings).items()
    }
