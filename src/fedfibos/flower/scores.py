"""A client's own score, kept in a file of the client: the server sees its masks and nothing else of it.

An upload may be lost or rejected, and the server may go on from an earlier checkpoint: the file holds the scores after
the uploads since then. With its next question the server says which round it counted last, and the client goes on from
that one: exactly the score that the server would hold.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedfibos.common.atomic_files import atomic_write
from fedfibos.flower.task import FleetTask
from fedfibos.method import ClientScored
from fedfibos.runs.checkpoint import KEEP
from fedfibos.runs.same_experiment import fixed_settings
from fedfibos.scores.rows import MemoryRows
from fedfibos.soundness import signed_by
from fedfibos.submodel import Mask
from fedfibos.types import Client, State, Upload
from fedfibos.wire.payload import WireError

NEVER = -1
Rounds = dict[int, Tensor]
"""Round of an upload -> the score after it."""


@dataclass(frozen=True)
class HeldScore:
    """The score of one client in one task.

    Attributes:
        folder: Where the client's files are.
        client: Its id.
        task: The task, whose method says what a score is.
    """

    folder: Path
    client: int
    task: FleetTask

    @property
    def path(self) -> Path:
        """The file; tasks that are run in turn have one each."""
        return self.folder / f"score-{self.client}-{self._fingerprint()}.safetensors"

    def mask(self, client: Client, counted: int, shared: Tensor | None = None) -> Mask:
        """The mask of a round.

        Args:
            client: The client in that round.
            counted: Round of its last upload that the server counted; -1: none.
            shared: The shared score that the server holds, shape ``(d,)``, where the two are blended.

        Raises:
            WireError: The file does not hold the score that belongs to that round.
        """
        rows = {t: row for t, row in self._read().items() if t <= counted}
        if counted != NEVER and counted not in rows:
            known = ", ".join(map(str, rows)) or "none"
            raise WireError(
                f"the server last counted round {counted}, {self.path.name} holds no score of it (of {known}): it is "
                "of another run, or lost"
            )
        self._write(rows)
        task = self.task
        params = task.model.initial_params()
        return task.method.extract(task.model, self._state(client, rows, shared), params, client).as_mask()

    def observe(self, client: Client, upload: Upload) -> Upload:
        """Note what the training showed, and take it out of the upload unless a shared score needs it too."""
        rows = self._read()
        state = self.task.method.update(self._state(client, rows), client, upload)
        row = state.rows.get(client.id)
        if row is not None:
            self._write({**rows, client.round: row})
        return upload if self.task.shares_a_score else replace(upload, statistic=None, observed="held")

    def _state(self, client: Client, rows: Rounds, shared: Tensor | None = None) -> State:
        """The server's state as far as this client knows it: the prior, its own row, a shared score if there is one."""
        method = self.task.method
        state = method.init(self.task.model.initial_params())
        if shared is not None and isinstance(method, ClientScored):
            state = method.with_shared_score(state, shared)
        return state if not rows else replace(state, rows=MemoryRows({client.id: rows[max(rows)]}))

    def _read(self) -> Rounds:
        if not self.path.exists():
            return {}
        try:
            with safe_open(self.path, framework="pt") as file:
                if (file.metadata() or {}).get("task") != self._fingerprint():
                    return {}
                return {int(name): self._sound(name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError) as error:
            raise WireError(f"{self.path.name} cannot be read: {str(error).splitlines()[0]}") from None

    def _sound(self, name: str, row: Tensor) -> Tensor:
        """The score of a round as it was written.

        Raises:
            ValueError: It is none: of another shape or type, or with values that no training gives.
        """
        size = self.task.model.layout.num_maskable
        if row.dtype != torch.float32 or row.shape != (size,):
            got = f"{str(row.dtype).removeprefix('torch.')} of shape {tuple(row.shape)}"
            raise ValueError(f"the score of round {name} must be float32 of shape ({size},), got {got}")
        bad = ~row.isfinite()
        if "statistic" not in signed_by(self.task.method):
            bad |= row < 0
        if bad.any():
            raise ValueError(
                f"the score of round {name} must be finite and at least 0, got {int(bad.sum())} other values"
            )
        return row

    def _write(self, rows: Rounds) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        since = max(rows, default=0) - KEEP * self.task.federation.checkpoint_every
        before = max((t for t in rows if t < since), default=since)  # what the oldest checkpoint may have counted last
        kept = {str(t): row for t, row in sorted(rows.items()) if t >= before}
        with atomic_write(self.path) as temporary:
            save_file(kept, temporary, {"task": self._fingerprint()})

    def _fingerprint(self) -> str:
        """Of what makes another run: the server may go on with another deadline, or with more rounds."""
        return _fingerprint(self.task.settings)


@lru_cache(maxsize=4)  # a device asks for its own app's with every message
def _fingerprint(settings: str) -> str:
    fixed = json.dumps(fixed_settings(settings), sort_keys=True)
    return hashlib.sha256(fixed.encode()).hexdigest()[:16]
