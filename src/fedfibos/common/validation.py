"""Checks of what people write in experiment files; every error is one line with the nearest valid name."""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter, ValidationError


class ExperimentError(ValueError):
    """An experiment that cannot be run as written; the message is one line.

    Attributes:
        key: Dotted name of the offending key, or of its section; empty where there is none.
    """

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class FieldError(ValueError):
    """What is wrong with one field of an object, where the message does not begin with its name.

    Attributes:
        field: The field.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def check_name(what: str, name: object, known: Iterable[str]) -> None:
    """Raise ValueError with the nearest valid name unless ``name`` is known."""
    known = list(known)
    if name not in known:
        raise ValueError(f"{what} must be {listed(known)}, got {name!r}{did_you_mean(str(name), known)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no name is near."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that is likely to be meant, if any; capitals, hyphens and underscores do not count."""
    plain: dict[str, str] = {}
    for one in known:
        plain.setdefault(_plain(one), one)
    near = difflib.get_close_matches(_plain(name), list(plain), n=1)
    return plain[near[0]] if near else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def listed(names: Iterable[str]) -> str:
    """Names as a phrase: ``one of 'a', 'b'``."""
    quoted = [repr(name) for name in names]
    return "one of " + ", ".join(quoted) if len(quoted) > 1 else quoted[0] if quoted else "absent"


def checked(cls: Any, values: Any, path: str) -> Any:
    """Validate plain values as TOML gives them against a type, without coercion.

    Args:
        cls: A dataclass, or any type annotation.
        values: Tables as dicts, arrays as lists or tuples.
        path: Dotted key of ``values``, for the message.

    Raises:
        ExperimentError: In one line: which key, what was wanted, what was got.
    """
    try:
        return _adapter(cls).validate_json(json.dumps(values, default=str), strict=True)
    except RecursionError:
        raise ExperimentError(f"{path} is nested too deeply", path) from None
    except ValidationError as error:
        raise _translated(error, path) from None


@functools.cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    """Made once a type: a report reads hundreds of experiments."""
    return TypeAdapter(cls)


WANTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "an array",
    "list": "an array",
    "dict": "a table",
    "dataclass": "a table",
    "finite": "a finite number",
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "too_short": "of at least {min_length} elements",
    "too_long": "of at most {max_length} elements",
    "literal": "{expected}",
}
"""Start of pydantic's error type -> what was wanted."""


def _translated(error: ValidationError, path: str) -> ExperimentError:
    """The first of a validation's errors, in one line."""
    first = error.errors(include_url=False)[0]
    key = ".".join([path, *(str(piece) for piece in first["loc"])])
    if first["type"] == "value_error":
        cause = first["ctx"]["error"]
        if isinstance(cause, FieldError):
            where = key if cause.field in str(cause).split() else f"{key}.{cause.field}"
            return ExperimentError(f"{where}: {cause}", f"{key}.{cause.field}")
        return _named(str(cause), getattr(cause, "key", ""), key, first["input"])
    if first["type"] == "missing" and isinstance(first["loc"][-1], int):  # of an array of so many
        places = [
            int(one["loc"][-1]) for one in error.errors(include_url=False) if one["loc"][:-1] == first["loc"][:-1]
        ]
        array = key.rpartition(".")[0]
        return ExperimentError(f"{array} must be an array of {max(places) + 1}, got {toml_text(first['input'])}", array)
    if first["type"] == "missing":
        return ExperimentError(f"{key} is missing, and has no default", key)
    kind = max((k for k in WANTED if first["type"].startswith(k)), key=len, default="")
    wanted = WANTED[kind].format(**first.get("ctx", {})) if kind else first["msg"]
    got, near = first["input"], ""
    if kind == "literal":
        near = did_you_mean(str(got), re.findall("'(.*?)'", wanted))
        wanted = f"one of {wanted}"
    text = repr(got) if kind == "int" and isinstance(got, float) else toml_text(got)  # 1000.0, not 1000
    return ExperimentError(f"{key} must be {wanted}, got {text}{near}", key)


def _named(text: str, inner: str, key: str, values: object) -> ExperimentError:
    """A check's own message, with the dotted key in front where it does not name it."""
    if inner or text.startswith(f"{key}."):
        return ExperimentError(text, inner or text.split()[0])
    word, _, rest = text.partition(" ")
    if word == key.rpartition(".")[2]:
        return ExperimentError(f"{key} {rest}", key)
    if isinstance(values, dict) and word in values:
        return ExperimentError(f"{key}.{text}", f"{key}.{word}")
    return ExperimentError(f"{key}: {text}", key)


def toml_text(value: object) -> str:
    """A value as it is written in TOML, nearly: what was got, in a message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else repr(value)
