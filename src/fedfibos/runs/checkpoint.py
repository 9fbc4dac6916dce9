"""Checkpoints: parameters and server state, written so that a kill at any moment loses at most the rounds since.

A checkpoint is a directory ``checkpoint/round-000120``: ``params.safetensors``, ``state.safetensors``, and
``meta.json`` (:mod:`fedfibos.runs.manifest`) with the round, the SHA-256 of every file it refers to, that of the rounds
on record before it, and one of all this. It is written under a temporary name, synced and renamed. Per-client rows lie
beside it, ``checkpoint/rows/000017-000112.safetensors`` (client, round of writing), and control variates in
``checkpoint/variates`` (:mod:`fedfibos.runs.kept_rows`). The last two checkpoints are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedfibos.common.formatting import first_line
from fedfibos.params import Layout, Params
from fedfibos.runs.best import best_round
from fedfibos.runs.files import CHECKPOINT, CLIENTS, CONFIG, ROUNDS, VARIATES
from fedfibos.runs.kept_rows import KeptRows, files_of, writes_of
from fedfibos.runs.manifest import META, Manifest, decode
from fedfibos.runs.reading import RecordError
from fedfibos.runs.rounds import digests, lines_of, read_rounds, same_history
from fedfibos.runs.same_experiment import ELSEWHERE, settings_digest
from fedfibos.runs.synced import remove, sha256_of, sync_folder, sync_write, write_tensors
from fedfibos.scores.files import Bytes, FileRows, Home, RowFile
from fedfibos.server.average import served
from fedfibos.types import State

KEEP = 2
"""Checkpoints that are kept: the last ones."""

At = int | Literal["last", "best"]
"""Which of the checkpoints that are kept."""

PARAMS, STATE = "params.safetensors", "state.safetensors"


class OtherModelError(ValueError):
    """A sound checkpoint of a model with another number of parameters."""


@dataclass(frozen=True)
class Checkpoint:
    """The server after ``round`` finished rounds."""

    round: int
    params: Params
    state: State

    @property
    def served(self) -> Params:
        """What the server evaluates and exports: the average of ``server.average``, or the parameters themselves."""
        return served(self.state, self.params)

    def to(self, device: torch.device) -> Checkpoint:
        """The same with parameters and the state's tensors on a device; rows stay where they are kept."""
        tensors = {name: tensor.to(device) for name, tensor in self.state.tensors.items()}
        return Checkpoint(self.round, self.params.to(device), replace(self.state, tensors=tensors))


class CheckpointStore:
    """The checkpoints of one run directory."""

    def __init__(self, run: Path, home: Home = "memory", score_bytes: Bytes = 4, best: str | None = None) -> None:
        """Open the checkpoints of a run; ``best``: the number of a round by which the best one is kept too."""
        self.run, self.folder, self.rounds = run, run / CHECKPOINT, run / ROUNDS
        self.home, self.best = home, best
        self.scores = KeptRows(run / CLIENTS if home == "client" else self.folder / "rows", home, score_bytes)
        clients = run / CLIENTS if home == "client" else self.folder
        self.variates = KeptRows(clients / VARIATES, home)  # signed: in two bytes they would not be kept

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, then drop those before the last two.

        Raises:
            OSError: It could not be written (no space); earlier checkpoints are untouched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".round-{checkpoint.round:06d}.tmp"
        remove(temporary)
        temporary.mkdir()
        try:
            manifest = self._write_files(checkpoint, temporary)
            sync_write(temporary / META, manifest.encode())
            sync_folder(temporary)
        except BaseException:
            remove(temporary)
            raise
        final = self.folder / manifest.folder
        remove(final)
        temporary.rename(final)
        sync_folder(self.folder)
        self._drop_others(checkpoint.round)

    def _write_files(self, checkpoint: Checkpoint, folder: Path) -> Manifest:
        """Write the tensors, and the rows that are new."""
        state, layout = checkpoint.state, checkpoint.params.layout
        files = {
            PARAMS: write_tensors({"flat": checkpoint.params.flat}, folder / PARAMS),
            STATE: write_tensors(dict(state.tensors), folder / STATE),
        }
        rows, variates = self.scores.save(state.rows, checkpoint.round), None
        for client in rows:
            files[self.scores.path(rows[client].name, folder)] = rows[client].sha256
        if state.variates.clients():
            variates = self.variates.save(state.variates, checkpoint.round)
            files |= {self.variates.path(file.name, folder): file.sha256 for file in variates.values()}
        history = digests(self.rounds, checkpoint.round)
        return Manifest(
            checkpoint.round,
            layout.size,
            layout.digest.hex(),
            files,
            {client: file.name for client, file in rows.items()},
            writes_of(state.rows),
            settings_digest(self.run),
            *history,
            variates=None if variates is None else {client: file.name for client, file in variates.items()},
            variate_writes=None if variates is None else writes_of(state.variates),
        )

    def load_latest(self, layout: Layout, warn: Callable[[str], None], *, to_go_on: bool = False) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are reported through ``warn`` and passed over.

        Args:
            layout: Of the model's parameters.
            warn: Called with what is to be known, in one line.
            to_go_on: Whether the run goes on from it: then the rounds on record must be those that it was written
                after.

        Raises:
            OtherModelError: It is of another model, or of the same with other parts held.
            RecordError: A sound checkpoint is there, of other settings than those in ``config.toml``, or after other
                rounds than those on record.
        """
        left, other_past = self._finished(), False
        while left:
            path = left.pop()
            try:
                manifest = self._sound(path)
                if manifest.settings != settings_digest(self.run):
                    raise RecordError(f"{self.run / CONFIG} is damaged: it is not what {path.name} was written under")
                checkpoint = self._load(path, manifest, layout)
                if not to_go_on or same_history(self.rounds, manifest.round, manifest.records, manifest.evaluation):
                    return checkpoint
                what = f"was written after other rounds than the first {manifest.round} of {self.rounds.name}"
                other_past = True
            except OtherModelError:
                raise
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                what = f"is damaged ({first_line(error)})"
            warn(f"checkpoint {path.name} {what}: " + (f"using {left[-1].name}" if left else "there is none before it"))
        if other_past:
            raise RecordError(
                f"{self.rounds} is damaged: the checkpoints are of other rounds than are in it: {ELSEWHERE}"
            )
        return None

    def load(self, at: At, layout: Layout, warn: Callable[[str], None]) -> Checkpoint:
        """The newest sound checkpoint, the best, or that of a round.

        Raises:
            RecordError: There is none such.
            OtherModelError: It is of another model.
        """
        if at != "last":
            return self.load_round(self.best_kept() if at == "best" else at, layout)
        checkpoint = self.load_latest(layout, warn)
        if checkpoint is None:
            raise RecordError(f"{self.run} must hold a sound checkpoint, it has none: run it again to get one")
        return checkpoint

    def load_round(self, number: int, layout: Layout) -> Checkpoint:
        """The checkpoint of a round that is kept.

        Raises:
            RecordError: It is not kept, or is damaged.
            OtherModelError: It is of another model.
        """
        kept = {_number(path): path for path in self._finished()}
        if number not in kept:
            there = f"those after round {' and '.join(map(str, kept))}" if kept else "none"
            raise RecordError(f"{self.run} keeps no checkpoint after round {number}, it has {there}")
        try:
            return self._load(kept[number], self._sound(kept[number]), layout)
        except OtherModelError:
            raise
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise RecordError(f"checkpoint {kept[number]} is damaged: {first_line(error)}") from None

    def is_best(self, number: int) -> bool:
        """Whether that round's checkpoint is the best so far, by the rounds on record."""
        return self.best is not None and self._best_round() == number

    def best_kept(self) -> int:
        """The round whose checkpoint is the best.

        Raises:
            RecordError: The run keeps none, or was never evaluated.
        """
        if self.best is None:
            raise RecordError(f"{self.run} keeps no best checkpoint: run it with checkpoint.best, the number to go by")
        number = self._best_round()
        if number is None:
            raise RecordError(f"{self.run} has no evaluated round yet: there is no best")
        return number

    def _best_round(self) -> int | None:
        if self.best is None:
            return None
        return best_round(list(read_rounds(self.rounds, lines_of(self.rounds))), self.best)

    def _load(self, path: Path, manifest: Manifest, layout: Layout) -> Checkpoint:
        if manifest.size != layout.size:
            raise OtherModelError(f"{path} is of a model of {manifest.size} parameters, got one of {layout.size}")
        if manifest.layout != layout.digest.hex():
            raise OtherModelError(f"{path} is of a model with other tensors, or with other parts held")
        flat = load_file(path / PARAMS)["flat"]
        rows = self.scores.load(_files(self.scores, path, manifest, manifest.rows), manifest.row_writes)
        variates = self.variates.empty()
        if manifest.variates is not None:
            files = _files(self.variates, path, manifest, manifest.variates)
            variates = self.variates.load(files, manifest.variate_writes)
        state = State(load_file(path / STATE), rows, variates)
        return Checkpoint(manifest.round, Params(layout, flat), state)

    def _sound(self, path: Path) -> Manifest:
        """The metadata of a checkpoint whose files are what they were when it was written.

        Raises:
            OSError, ValueError: They are not; in one line.
        """
        manifest = decode((path / META).read_bytes())
        if path.name != manifest.folder:
            raise ValueError(f"{META} is of {manifest.folder}")
        names = [(self.scores, manifest.rows), (self.variates, manifest.variates or {})]
        paths = {kept.path(file, path) for kept, files in names for file in files.values()}
        if manifest.files.keys() != {PARAMS, STATE} | paths:
            raise ValueError(f"{META} names other files than a checkpoint of these rows has")
        if (manifest.row_writes is None) != (self.home == "memory"):
            raise ValueError(f"{META} is of scores that are kept elsewhere than run.score_home = {self.home!r}")
        for file, digest in manifest.files.items():
            if sha256_of(path / file) != digest:
                raise ValueError(f"{file} does not have the recorded SHA-256")
        return manifest

    def drop_superseded(self, state: State) -> None:
        """Between checkpoints: remove the row files that neither this state nor a kept checkpoint refers to."""
        if isinstance(state.rows, FileRows):
            self._drop_rows(self._finished(), files_of(state.rows), files_of(state.variates))

    def _finished(self) -> list[Path]:
        found = (path for path in self.folder.glob("round-*") if path.name.removeprefix("round-").isdecimal())
        return sorted(found, key=_number)

    def _drop_others(self, newest: int) -> None:
        """Keep the last checkpoints up to the newest; later ones are damaged and were passed over."""
        finished = self._finished()
        best = self._best_round()
        past = [path for path in finished if _number(path) <= newest]
        kept = [path for path in past if path in past[-KEEP:] or _number(path) == best]
        for path in finished:
            if path not in kept:
                remove(path)
        self._drop_rows(kept, set(), set())

    def _drop_rows(self, kept: list[Path], scores: set[str], variates: set[str]) -> None:
        """Remove the row files that are neither wanted nor named by a kept checkpoint."""
        for path in kept:
            try:
                manifest = decode((path / META).read_bytes())
            except (OSError, ValueError):
                return  # a damaged checkpoint: keep every row rather than guess
            scores |= set(manifest.rows.values())
            variates |= set((manifest.variates or {}).values())
        self.scores.drop_others(scores)
        self.variates.drop_others(variates)


def _files(kept: KeptRows, path: Path, manifest: Manifest, names: Mapping[int, str]) -> dict[int, RowFile]:
    return {client: RowFile(name, manifest.files[kept.path(name, path)]) for client, name in names.items()}


def _number(path: Path) -> int:
    return int(path.name.removeprefix("round-"))
