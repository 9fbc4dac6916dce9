"""The metadata of a checkpoint, ``meta.json``: everything a resumption believes, under one digest.

The file is JSON for people to read, and has one right form: its first key is the SHA-256 of all the others, and a file
that is not, byte by byte, what its own content is written as is damaged. So no changed, lost or doubled byte passes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from fedfibos.common.formatting import first_line

META = "meta.json"

Count = Annotated[int, Field(ge=0)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is of, and which files it consists of.

    Attributes:
        round: Finished rounds; the folder is named after them.
        size: Number of parameters of the model.
        layout: Digest of the model's layout, in hex.
        files: Path of each file as seen from the checkpoint's folder -> its SHA-256.
        rows: Client -> name of the file of its row.
        row_writes: Versions of rows written so far; None where rows are kept in memory.
        settings: Digest of the settings that no resumption may change; see :mod:`fedfibos.runs.same_experiment`.
        records: Digest of the lines of ``rounds.jsonl`` up to this round; see :mod:`fedfibos.runs.rounds`.
        evaluation: Digest of the last of these lines' evaluation; None where it has none.
        variates: As ``rows``, of control variates; None without any, and then not in the file.
        variate_writes: As ``row_writes``.
    """

    round: Count
    size: Count
    layout: str
    files: dict[str, str]
    rows: dict[Count, str]
    row_writes: Count | None
    settings: str
    records: str
    evaluation: str | None
    variates: dict[Count, str] | None = None
    variate_writes: Count | None = None

    @property
    def folder(self) -> str:
        """Name of the checkpoint's folder."""
        return f"round-{self.round:06d}"

    def encode(self) -> bytes:
        """The content of ``meta.json``."""
        values = json.loads(json.dumps(asdict(self)))  # numbers as keys become text, as they are read back
        if self.variates is None:
            del values["variates"], values["variate_writes"]
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return json.dumps({"sha256": digest, **values}, indent=1).encode() + b"\n"


_SHAPE = TypeAdapter(Manifest)


def decode(content: bytes) -> Manifest:
    """Read ``meta.json``.

    Raises:
        ValueError: It is not exactly what :meth:`Manifest.encode` wrote; in one line.
    """
    try:
        values: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{META} is not valid JSON: {first_line(error)}") from None
    if not isinstance(values, dict) or "sha256" not in values:
        raise ValueError(f"{META} must be an object with a SHA-256 of its content, got {content[:40]!r}")
    del values["sha256"]
    try:
        manifest = _SHAPE.validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ValueError(f"{META}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from None
    if manifest.encode() != content:
        raise ValueError(f"{META} does not have the SHA-256 that it gives of its content")
    return manifest
