"""The files of per-client rows that checkpoints refer to: written once, named by each, dropped with the last.

Rows in memory are written when a checkpoint finds them new. Rows whose home is the disk or the clients are such files
already: a checkpoint syncs them and names them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from fedfibos.runs.synced import sync_file, write_tensors
from fedfibos.scores.files import Bytes, FileRows, Home, RowFile
from fedfibos.scores.rows import MemoryRows, Rows


class KeptRows:
    """One folder of a run's rows: the scores of its clients, or their control variates."""

    def __init__(self, folder: Path, home: Home, score_bytes: Bytes = 4) -> None:
        self.folder, self.home, self.score_bytes = folder, home, score_bytes
        self._written: dict[int, tuple[Tensor, str, str]] = {}  # client -> (its row, file, SHA-256)

    def empty(self) -> Rows:
        """A store without rows, in the run's score home."""
        return MemoryRows() if self.home == "memory" else FileRows(self.folder, score_bytes=self.score_bytes)

    def path(self, file: str, checkpoint: Path) -> str:
        """A row's file as seen from a checkpoint's folder."""
        return Path(os.path.relpath(self.folder, checkpoint), file).as_posix()

    def save(self, rows: Rows, round_number: int) -> dict[int, RowFile]:
        """Have every client's row in a file; write those that are in none yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return {client: self._saved(rows, client, round_number) for client in rows.clients()}

    def load(self, files: Mapping[int, RowFile], writes: int | None) -> Rows:
        """The rows in those files; ``writes`` as of :class:`FileRows`, None where rows are in memory."""
        if writes is not None:
            return FileRows(self.folder, files, writes, self.score_bytes)
        rows = {}
        for client, file in files.items():
            rows[client] = row = load_file(self.folder / file.name)["row"]
            self._written[client] = (row, file.name, file.sha256)
        return MemoryRows(rows)

    def drop_others(self, wanted: set[str]) -> None:
        """Remove the files that are not wanted."""
        for file in self.folder.glob("*.safetensors"):
            if file.name not in wanted:
                file.unlink()

    def _saved(self, rows: Rows, client: int, round_number: int) -> RowFile:
        if isinstance(rows, FileRows):
            sync_file(self.folder / rows.files[client].name)
            return rows.files[client]
        row = rows.get(client)
        assert row is not None
        known = self._written.get(client)
        if known is not None and known[0] is row and (self.folder / known[1]).exists():
            return RowFile(*known[1:])  # not the digest of what is there now: it may have been damaged since
        file = f"{client:06d}-{round_number:06d}.safetensors"
        digest = write_tensors({"row": row}, self.folder / f".{file}.tmp")
        (self.folder / f".{file}.tmp").rename(self.folder / file)
        self._written[client] = (row, file, digest)
        return RowFile(file, digest)


def writes_of(rows: Rows) -> int | None:
    """Versions of rows written so far; None where rows are in memory."""
    return rows.writes if isinstance(rows, FileRows) else None


def files_of(rows: Rows) -> set[str]:
    """Names of the files that rows live in."""
    return {file.name for file in rows.files.values()} if isinstance(rows, FileRows) else set()
