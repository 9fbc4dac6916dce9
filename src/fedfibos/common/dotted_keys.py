"""Nested tables as TOML has them, by dotted key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value; an empty table is a value.

    Example:
        >>> flat({"seed": 1, "data": {"name": "digits", "partition": {}}})
        {'seed': 1, 'data.name': 'digits', 'data.partition': {}}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
