"""What each client did in each round: in the lines of ``rounds.jsonl``, and as the table ``clients.parquet``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedfibos.common.atomic_files import atomic_write
from fedfibos.common.extras import MissingExtraError, extra
from fedfibos.runs.files import CLIENT_TABLE, ROUNDS
from fedfibos.runs.rounds import lines_of, read_rounds

COLUMNS = ("round", "client", "capacity", "loss", "seconds", "down", "up", "memory", "rejected")
"""Of the table: bytes in ``down``, ``up`` and ``memory``; why an upload did not count in ``rejected``."""


def client_records(
    clients: Mapping[int, Mapping[str, float]], rejected: Mapping[int, str]
) -> dict[str, dict[str, float | str]]:
    """The ``clients`` of a round's line; seconds to a tenth of a millisecond.

    Args:
        clients: As of :class:`fedfibos.RoundReport`.
        rejected: Client -> why.
    """
    found: dict[str, dict[str, float | str]] = {}
    for client, part in sorted(clients.items()):
        record: dict[str, float | str] = {k: round(v, 4) if k == "seconds" else v for k, v in part.items()}
        if client in rejected:
            record["rejected"] = rejected[client]
            record.pop("loss", None)  # it may be no number, which no JSON holds
        found[str(client)] = record
    return found


def table_rows(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of the table, from lines of ``rounds.jsonl``; those without clients have no rows."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for record in records:
        for client, part in record.get("clients", {}).items():
            row = {"round": record["round"], "client": int(client), **part}
            for name in COLUMNS:
                columns[name].append(row.get(name))
    return columns


def write_clients(run: Path, warn: Callable[[str], None] = lambda text: None) -> None:
    """Write a run's ``clients.parquet`` anew, from its rounds; without pyarrow a warning says so."""
    try:
        with extra("data"):
            import pyarrow as pa
            import pyarrow.parquet as pq
    except MissingExtraError as error:
        warn(f"{CLIENT_TABLE} is not written: {error}")
        return
    kinds = [pa.int64(), pa.int64(), pa.float64(), pa.float64(), pa.float64(), *[pa.int64()] * 3, pa.string()]
    columns = table_rows(read_rounds(run / ROUNDS, lines_of(run / ROUNDS)))
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
    try:
        with atomic_write(run / CLIENT_TABLE) as temporary:
            pq.write_table(pa.table(columns, schema=schema), temporary)
    except OSError as error:
        warn(f"{CLIENT_TABLE} is not written: {error.strerror or error}")
