"""What is read back from a run directory is checked first: a damaged file is one line that names it."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedfibos.common.formatting import first_line


class RecordError(RuntimeError):
    """A run directory that cannot be used or written; the message is one line."""


def parse_object(where: str, content: bytes, shape: TypeAdapter[Any]) -> dict[str, Any]:
    """The object in a JSON text.

    Raises:
        RecordError: It is damaged: no JSON, no object, or of another shape.
    """
    try:
        values = _STRICT.decode(content.decode())
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where} is damaged: {first_line(error)}") from None
    check(where, values, shape)
    return values  # type: ignore[no-any-return]


def check(where: str, values: Any, shape: TypeAdapter[Any]) -> None:
    """Raise RecordError for values that are no object, or of another shape."""
    if not isinstance(values, dict):
        raise RecordError(f"{where} is damaged: it must hold an object, got {shorten(values)}")
    try:
        shape.validate_python(values, strict=True)
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(str(part) for part in wrong["loc"])
        got = "" if wrong["type"] == "missing" else f", got {shorten(wrong['input'])}"
        message = wrong["msg"].removeprefix("Value error, ")
        raise RecordError(f"{where} is damaged: {key}: {message}{got}") from None


def shorten(value: Any) -> str:
    """A value as JSON, cut to fit a line."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


_STRICT = json.JSONDecoder(parse_constant=_refuse)
