"""Checkpoints: parameters and server state, written so that a kill at any moment loses at most the rounds since.

A checkpoint is a directory ``checkpoint/round-000120``: ``params.safetensors``, ``state.safetensors``, and
``meta.json`` with the round and the SHA-256 of every file it refers to. It is written under a temporary name, synced
and renamed. Per-client rows lie beside it, ``checkpoint/rows/000017-000112.safetensors`` (client, round of writing):
a checkpoint refers to them and writes only those that are new. Rows whose home is the disk or the clients are such
files already: a checkpoint syncs them and names them. The last two checkpoints are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedfibos.params import Layout, Params
from fedfibos.scores.files import Bytes, FileRows, Home, RowFile
from fedfibos.scores.rows import MemoryRows, Rows
from fedfibos.types import State

KEEP = 2
"""Checkpoints that are kept: the last ones."""


class OtherModelError(ValueError):
    """A sound checkpoint of a model with another number of parameters."""


class DamagedCheckpointError(RuntimeError):
    """A checkpoint whose files are not what its ``meta.json`` says."""


@dataclass(frozen=True)
class Checkpoint:
    """The server after ``round`` finished rounds."""

    round: int
    params: Params
    state: State

    def to(self, device: torch.device) -> Checkpoint:
        """The same with parameters and the state's tensors on a device; rows stay where they are kept."""
        tensors = {name: tensor.to(device) for name, tensor in self.state.tensors.items()}
        return Checkpoint(self.round, self.params.to(device), replace(self.state, tensors=tensors))


class CheckpointStore:
    """The checkpoints of one run directory."""

    def __init__(self, run: Path, home: Home = "memory", score_bytes: Bytes = 4) -> None:
        self.folder = run / "checkpoint"
        self.home, self.score_bytes = home, score_bytes
        self.rows_folder = run / "clients" if home == "client" else self.folder / "rows"
        self._written: dict[int, tuple[Tensor, str, str]] = {}  # client -> (its row, file, SHA-256)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then drop those before the last two.

        Raises:
            OSError: It could not be written (no space); earlier checkpoints are untouched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rows_folder.mkdir(parents=True, exist_ok=True)
        name = f"round-{checkpoint.round:06d}"
        temporary = self.folder / f".{name}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            files = {
                "params.safetensors": _write({"flat": checkpoint.params.flat}, temporary / "params.safetensors"),
                "state.safetensors": _write(dict(checkpoint.state.tensors), temporary / "state.safetensors"),
            }
            rows: dict[str, str] = {}
            for client in checkpoint.state.rows.clients():
                file, digest = self._save_row(client, checkpoint)
                rows[str(client)] = file
                files[self._row_path(file)] = digest
            layout = checkpoint.params.layout
            meta: dict[str, Any] = {"round": checkpoint.round, "size": layout.size, "layout": layout.digest.hex()}
            meta |= {"files": files, "rows": rows}
            if isinstance(checkpoint.state.rows, FileRows):
                meta["row_writes"] = checkpoint.state.rows.writes
            _sync_write(temporary / "meta.json", json.dumps(meta, indent=1).encode())
            _sync_folder(temporary)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        final = self.folder / name
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        _sync_folder(self.folder)
        self._drop_old()

    def load_latest(self, layout: Layout, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are reported through ``warn`` and passed over.

        Raises:
            OtherModelError: It is of another model, or of the same with other parts held.
        """
        for path in reversed(self._finished()):
            try:
                return self._load(path, layout)
            except DamagedCheckpointError as error:
                warn(f"checkpoint {path.name} is damaged ({error}): using the one before it")
        return None

    def _load(self, path: Path, layout: Layout) -> Checkpoint:
        try:
            meta: dict[str, Any] = json.loads((path / "meta.json").read_text())
            for file, digest in meta["files"].items():
                if _digest(path / file) != digest:
                    raise DamagedCheckpointError(f"{file} does not have the recorded SHA-256")
            if meta["size"] != layout.size:
                raise OtherModelError(f"{path} is of a model of {meta['size']} parameters, got one of {layout.size}")
            if meta.get("layout", layout.digest.hex()) != layout.digest.hex():  # older checkpoints have none
                raise OtherModelError(f"{path} is of a model with other tensors, or with other parts held")
            flat = load_file(path / "params.safetensors")["flat"]
            state = State(load_file(path / "state.safetensors"))
            rows = self._load_rows(path, meta)
        except OtherModelError:
            raise
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise DamagedCheckpointError(str(error).splitlines()[0]) from error
        return Checkpoint(meta["round"], Params(layout, flat), replace(state, rows=rows))

    def empty_rows(self) -> Rows:
        """A store without rows, in the run's score home."""
        return MemoryRows() if self.home == "memory" else FileRows(self.rows_folder, score_bytes=self.score_bytes)

    def drop_superseded(self, state: State) -> None:
        """Between checkpoints: remove the row files that neither this state nor a kept checkpoint refers to."""
        if isinstance(state.rows, FileRows):
            self._drop_rows(self._finished(), {file.name for file in state.rows.files.values()})

    def _row_path(self, file: str) -> str:
        """A row file as seen from a checkpoint's folder."""
        return f"../../clients/{file}" if self.home == "client" else f"../rows/{file}"

    def _load_rows(self, path: Path, meta: dict[str, Any]) -> Rows:
        names = {int(client): file for client, file in meta["rows"].items()}
        if self.home == "memory":
            rows = {}
            for client, file in names.items():
                rows[client] = row = load_file(path / self._row_path(file))["row"]
                self._written[client] = (row, file, meta["files"][self._row_path(file)])
            return MemoryRows(rows)
        files = {n: RowFile(file, meta["files"][self._row_path(file)]) for n, file in names.items()}
        return FileRows(self.rows_folder, files, meta["row_writes"], self.score_bytes)

    def _save_row(self, client: int, checkpoint: Checkpoint) -> tuple[str, str]:
        """Write a client's row unless the file of this very row exists; return its name and digest."""
        folder, rows = self.rows_folder, checkpoint.state.rows
        if isinstance(rows, FileRows):
            _sync_file(folder / rows.files[client].name)
            return rows.files[client].name, rows.files[client].sha256
        row = rows.get(client)
        assert row is not None
        known = self._written.get(client)
        if known is not None and known[0] is row and (folder / known[1]).exists():
            return known[1:]  # not the digest of what is there now: it may have been damaged since
        file = f"{client:06d}-{checkpoint.round:06d}.safetensors"
        digest = _write({"row": row}, folder / f".{file}.tmp")
        (folder / f".{file}.tmp").rename(folder / file)
        self._written[client] = (row, file, digest)
        return file, digest

    def _finished(self) -> list[Path]:
        numbers = {path: path.name.removeprefix("round-") for path in self.folder.glob("round-*")}
        return sorted((path for path in numbers if numbers[path].isdecimal()), key=lambda path: int(numbers[path]))

    def _drop_old(self) -> None:
        kept = self._finished()[-KEEP:]
        for path in self._finished()[:-KEEP]:
            shutil.rmtree(path)
        self._drop_rows(kept, set())

    def _drop_rows(self, kept: list[Path], wanted: set[str]) -> None:
        """Remove the row files that are neither wanted nor named by a kept checkpoint."""
        for path in kept:
            try:
                wanted |= set(json.loads((path / "meta.json").read_text())["rows"].values())
            except (OSError, ValueError, KeyError):
                return  # a damaged checkpoint: keep every row rather than guess
        for file in self.rows_folder.glob("*.safetensors"):
            if file.name not in wanted:
                file.unlink()


def _write(tensors: dict[str, Tensor], path: Path) -> str:
    """Write tensors, sync, return the file's SHA-256."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"the checkpoint could not be written, the one before it is kept: {error}") from error
    _sync_file(path)
    return _digest(path)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
