"""The lines of ``rounds.jsonl``: read, checked, and known again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from fedfibos.runs.reading import RecordError, parse_object
from fedfibos.runs.shapes import LINE_SHAPE
from fedfibos.runs.stored import stored_bytes


def lines_of(path: Path) -> list[bytes]:
    """The lines as they are, without their line breaks; none where there is no such file.

    Raises:
        RecordError: The file cannot be read.
    """
    try:
        return stored_bytes(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None


def read_rounds(path: Path, lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """The rounds that those lines of a file hold.

    Raises:
        RecordError: A line is damaged: no object of its round with what a round has.
    """
    for number, line in enumerate(lines, start=1):
        where = f"{path}: line {number}"
        record = parse_object(where, line, LINE_SHAPE)
        if record["round"] != number:
            raise RecordError(f"{where} must be the object of round {number}, got {line[:60].decode(errors='replace')}")
        yield record


def encode_round(record: Any) -> bytes:
    """A round's line, with its line break."""
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def digests(path: Path, rounds: int) -> tuple[str, str | None]:
    """What a checkpoint knows its past by: digests of the first lines, and of the last one's evaluation if it has one.

    The evaluation is apart, since a run that is lengthened drops that of the round that is no longer the last.
    """
    lines = list(islice(lines_of(path), rounds))
    *before, last = lines or [b""]
    evaluation = None
    try:
        record = json.loads(last)
        evaluation = hashlib.sha256(encode_round(record.pop("evaluation"))).hexdigest()
        last = encode_round(record)[:-1]
    except (ValueError, AttributeError, KeyError, RecursionError):  # without one; of damaged lines the bytes
        pass
    return hashlib.sha256(b"\n".join([*before, last])).hexdigest(), evaluation


def same_history(path: Path, rounds: int, records: str, evaluation: str | None) -> bool:
    """Whether the first lines are those that a checkpoint was written after."""
    now, measured = digests(path, rounds)
    return now == records and measured in (evaluation, None)
