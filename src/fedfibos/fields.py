"""Fields checked where an object is made, and not where a value is first used: words, and numbers that are numbers."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedfibos.validation import check_name


def check_fields(made: Any) -> None:
    """Raise ValueError unless every ``Literal`` field of a dataclass has one of its words and every number is finite.

    A type checker says so too, and an experiment file is checked before; a plain call is not.
    """
    cls: Any = type(made)
    for name, words in _choices(cls).items():
        check_name(name, getattr(made, name), words)
    for field in dataclasses.fields(cls):
        value = getattr(made, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{field.name} must be a finite number, got {value}")


@functools.cache
def _choices(cls: Any) -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: get_args(hints[name]) for name in names if get_origin(hints[name]) is Literal}
