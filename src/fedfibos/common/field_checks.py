"""Fields checked where an object is made, and not where a value is first used: words, and numbers that are numbers."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedfibos.common.validation import check_name

KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("True or False", lambda value: isinstance(value, bool)),
    int: ("an integer", lambda value: isinstance(value, Integral) and not isinstance(value, bool)),
    float: (
        "a finite number",
        lambda value: isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value),
    ),
}
"""Type of a field -> what it is in words, and whether a value is one."""


def check_fields(made: Any) -> None:
    """Raise ValueError unless every field of a dataclass is what it is declared as.

    That is: one of the words of its ``Literal``, a bool, an integer, a finite number, or None where it may be; fields
    of other types are not looked at. A type checker says so too, and an experiment file is checked before; a plain call
    is not.
    """
    cls: Any = type(made)
    for name, wanted in _declared(cls).items():
        value = getattr(made, name)
        if value is None and NoneType in wanted:
            continue
        words = next((get_args(kind) for kind in wanted if get_origin(kind) is Literal), None)
        if words is not None and not (callable(value) and any(get_origin(kind) is Callable for kind in wanted)):
            check_name(name, value, words)
        said = [KINDS[kind] for kind in wanted if kind in KINDS]
        if said and not any(is_one(value) for _, is_one in said):
            got = repr(value) if isinstance(value, str) else value
            raise ValueError(f"{name} must be {' or '.join(words for words, _ in said)}, got {got}")


def check_positive(made: Any, *names: str) -> None:
    """Raise ValueError unless these fields are above 0."""
    for name in names:
        if not getattr(made, name) > 0:
            raise ValueError(f"{name} must be a positive number, got {getattr(made, name)}")


@functools.cache
def _declared(cls: Any) -> dict[str, tuple[Any, ...]]:
    """Field of a dataclass -> the types that it may have."""
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)
    return {field.name: _alternatives(hints[field.name]) for field in fields}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
