"""Homes of per-client scores other than memory: one file for each client and version.

``N`` clients of ``d`` scores are 4.5 GB for 100 of ResNet-18 and 100 GB for 200 of RoBERTa-base. Kept in files, the
server reads one row at a time: through a memory map to select, in blocks to change it. A client that never took part
has no file (the prior is stored once, in the state). Values are float32 as in memory, so every home gives the same
bytes; in two bytes each (:mod:`~fedfibos.scores.sixteen_bit`) they take half of the disk, and selections differ a
little.

A file is written once and never changed: putting a row writes the next version beside the old one, which stays for
as long as an earlier state or a checkpoint refers to it. The files are safetensors, so those of a checkpoint and
those of a running store are the same files.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedfibos.scores.rows import sound
from fedfibos.scores.sixteen_bit import from_halves, to_halves

Home = Literal["memory", "disk", "client"]

Bytes = Literal[2, 4]
"""Of a stored score: 4 is float32, exact."""

BLOCK = 1 << 20
"""Scores per block: 4 MB."""

_TYPES: dict[Bytes, tuple[str, type[np.generic]]] = {2: ("U16", np.uint16), 4: ("F32", np.float32)}


@dataclass(frozen=True)
class RowFile:
    """One version of one client's row: the file's name in the store's folder, and its SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True)
class FileRows:
    """Rows in files: an immutable mapping from client to the version that counts.

    Attributes:
        folder: Where the files are.
        files: The present version of every client that has a row.
        writes: Number of versions written so far; numbers the next one.
        score_bytes: What the next versions take a score. A file says what it has, so a folder may hold both.
    """

    folder: Path
    files: Mapping[int, RowFile] = field(default_factory=dict)
    writes: int = 0
    score_bytes: Bytes = 4

    def get(self, client: int) -> Tensor | None:
        """The client's row. Of float32 memory-mapped: pages are read when touched, changes to it reach no file."""
        if client not in self.files:
            return None
        path = self.folder / self.files[client].name
        start, count, size = _extent(path)
        if size == 4:
            return torch.from_numpy(np.memmap(path, np.float32, "c", start, (count,)))
        row, first = torch.empty(count), 0
        for block in self._blocks(self.files[client]):
            row[first : first + len(block)] = block
            first += len(block)
        return row

    def put(self, client: int, row: Tensor) -> FileRows:
        """The store with that client's row replaced."""
        return self._write(client, row.numel(), row.detach().cpu().split(BLOCK))

    def revise(self, client: int, initial: Tensor, change: Callable[[Tensor, slice], Tensor]) -> FileRows:
        """The store with that client's row changed block by block: never more than a block of it is in memory."""
        old = initial.cpu().split(BLOCK) if client not in self.files else self._blocks(self.files[client])

        def new() -> Iterator[Tensor]:
            start = 0
            for block in old:
                yield change(block.to(initial.device), slice(start, start + len(block)))
                start += len(block)

        return self._write(client, initial.numel(), new())

    def clients(self) -> list[int]:
        """See :class:`fedfibos.scores.rows.Rows`."""
        return sorted(self.files)

    def _blocks(self, file: RowFile) -> Iterator[Tensor]:
        path = self.folder / file.name
        start, count, size = _extent(path)
        with path.open("rb") as stream:
            stream.seek(start)
            while count > 0:
                block = torch.from_numpy(np.fromfile(stream, _TYPES[size][1], min(BLOCK, count)))
                if len(block) == 0:
                    raise ValueError(f"score file {file.name} ends early, {count} scores are missing")
                count -= len(block)
                yield block if size == 4 else from_halves(block)

    def _write(self, client: int, count: int, blocks: Iterable[Tensor]) -> FileRows:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{client:06d}-{self.writes + 1:06d}.safetensors"
        temporary, digest = self.folder / f".{name}.tmp", hashlib.sha256()
        with temporary.open("wb") as stream:
            sound_blocks = (self._encoded(sound(client, block)) for block in blocks)
            for data in itertools.chain([_header(count, self.score_bytes)], sound_blocks):
                stream.write(data)
                digest.update(data)
        temporary.rename(self.folder / name)
        files = {**self.files, client: RowFile(name, digest.hexdigest())}
        return replace(self, files=files, writes=self.writes + 1)

    def _encoded(self, block: Tensor) -> bytes:
        block = block.detach().cpu()
        return (block if self.score_bytes == 4 else to_halves(block)).numpy().tobytes()


def _header(count: int, size: Bytes) -> bytes:
    """The head of a safetensors file with one vector named ``row``."""
    text = json.dumps({"row": {"dtype": _TYPES[size][0], "shape": [count], "data_offsets": [0, size * count]}})
    text += " " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text.encode()


def _extent(path: Path) -> tuple[int, int, Bytes]:
    """Where the values begin, in bytes, how many there are, and the bytes of each."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        row = json.loads(stream.read(length))["row"]
    return 8 + length, row["shape"][0], 2 if row["dtype"] == "U16" else 4
