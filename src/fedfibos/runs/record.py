"""The run directory: what was run, where, what each round did, and what came out.

- ``config.toml``: the experiment with every setting written out.
- ``environment.json``: versions, hardware, commit, command, digests of the user's own code and of who has which
  examples; those of a resumption elsewhere under ``resumed``.
- ``rounds.jsonl``: one object a round.
- ``final.json``: the results, once the run is finished.
- ``evaluation.json``: the last checkpoint measured anew (``fedfibos evaluate``), where somebody did.
- ``checkpoint/``: see ``runs/checkpoint.py``.
"""

from __future__ import annotations

import errno
import json
import os
import tomllib
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps two processes from one directory
    fcntl = None  # type: ignore[assignment]

from fedfibos.common.atomic_files import write_whole
from fedfibos.common.dotted_keys import flat
from fedfibos.runs.files import (
    CONFIG,
    FINAL,
    LOCK,
    ROUNDS,
    begun,
    foreign,
    remove_own,
    written_or_said,
)
from fedfibos.runs.made import note_environment
from fedfibos.runs.own_code import keep_code, own_code
from fedfibos.runs.reading import RecordError
from fedfibos.runs.rounds import encode_round, lines_of, read_rounds
from fedfibos.runs.same_experiment import ELSEWHERE, FREE, ROUNDS_KEY, check_same, settings_in


class BusyError(RecordError):
    """A run directory that another process is writing."""


def check_usable(
    out: Path, config: str, *, resume: bool = False, overwrite: bool = False, free: Collection[str] = FREE
) -> bool:
    """Whether the run of a directory is gone on with under other settings; nothing is written.

    A directory in which no round was finished is nobody's run: any experiment may begin in it.

    Args:
        out: The directory.
        config: The experiment, as the text of a TOML file with every setting.
        resume: As of :meth:`RunDirectory.open`.
        overwrite: As there.
        free: As there.

    Raises:
        RecordError: As there.
    """
    with written_or_said(out):
        if foreign(out):
            raise RecordError(f"{out} is not empty and no run directory: choose another --out")
        if overwrite or not begun(out):
            return False
        changed = check_same(out, config, resume, free)
        if not resume:
            state = "a finished" if (out / FINAL).exists() else "an unfinished"
            raise RecordError(
                f"{out} holds {state} run of this experiment: pass --resume to go on, --overwrite to run it "
                "anew, or choose another --out"
            )
        return changed


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run, this process's own as long as the object lives.

    Attributes:
        path: The directory.
    """

    path: Path

    @classmethod
    def open(
        cls,
        out: Path,
        config: str,
        *,
        resume: bool = False,
        overwrite: bool = False,
        device: str = "cpu",
        warn: Callable[[str], None] = lambda text: None,
        began: Mapping[str, str] | None = None,
        free: Collection[str] = FREE,
    ) -> RunDirectory:
        """Start a run directory, or go on with one, of which only its environment is noted before :meth:`go_on`.

        Args:
            out: The directory; made if it is not there. With ``resume`` it may also be new or empty.
            config: What is run, as the text of a TOML file with every setting.
            resume: Whether a run of the same experiment that is already there is continued; with other values of
                ``free`` too, and with more rounds than it had, unless its learning
                rate follows a schedule over all of them (``cosine``).
            overwrite: Whether a run that is already there is removed first; files that are not a run's stay.
            device: ``cpu`` or ``cuda``, for ``environment.json``.
            warn: Told where the user's own code has changed since.
            began: Digests of what the run begins with, for ``environment.json``:
                :data:`fedfibos.runs.made.DEALT`, :data:`fedfibos.runs.made.INITIAL`.
            free: Settings that a resumption may change.

        Raises:
            RecordError: It holds another experiment (names the first key that differs), a run of the same one while
                ``resume`` is not given or whose data were dealt otherwise, other files, is damaged, is another
                process's, or cannot be written.
        """
        directory = cls(out)
        changed = check_usable(out, config, resume=resume, overwrite=overwrite, free=free)
        with written_or_said(out):
            out.mkdir(parents=True, exist_ok=True)
            directory._lock()
            if overwrite or not begun(out):
                remove_own(out)
                write_whole(out / CONFIG, config)
            if changed or not (out / FINAL).exists():  # nothing is made of a finished run
                note_environment(out, device, own_code(config), warn, began or {})
                keep_code(out, config)
            directory._drop_unfinished_line()
        return directory

    def abandon(self, nothing_counted: bool = False) -> None:
        """Remove what was written, and the directory if nothing else is in it, unless a round was finished.

        Args:
            nothing_counted: Whether all rounds that were finished brought nothing.
        """
        if nothing_counted or not begun(self.path):
            remove_own(self.path)
            (self.path / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                self.path.rmdir()

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Add a round's line, and have it on the disk when this returns.

        Raises:
            RecordError: It could not be written (no space, say); the lines before it are as they were.
        """
        path = self.path / ROUNDS
        line = encode_round(record)
        # Unbuffered: closing the file after a failure must not try to write what is left once more.
        with written_or_said(path), path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):  # half a line that cannot be cut off now is cut off by the next ``open``
                    os.truncate(path, size)
                raise

    def rounds(self) -> list[dict[str, Any]]:
        """All rounds on record, in order.

        Raises:
            RecordError: A line is damaged.
        """
        path = self.path / ROUNDS
        return list(read_rounds(path, lines_of(path)))

    def go_on(self, rounds: int, config: str, warn: Callable[[str], None] = lambda text: None) -> None:
        """Keep the first ``rounds`` rounds, those that a checkpoint knows of, and forget how the run ended.

        An evaluation that was made only because its round was the last goes too, with a warning: an uninterrupted run
        of as many rounds would not have it. What comes after these rounds need not be sound.

        Args:
            rounds: Finished rounds that are gone on from; 0 without a checkpoint.
            config: As in :meth:`open`; what the record says from now on.
            warn: Called with what is to be known, in one line.

        Raises:
            RecordError: Fewer are on record, one is damaged, or the run is finished and no checkpoint is left of it.
        """
        path = self.path / ROUNDS
        lines = lines_of(path)
        if len(lines) < rounds:
            raise RecordError(f"{path}: the checkpoint is of round {rounds}, got only {len(lines)} rounds on record")
        if not rounds and (self.path / FINAL).exists():
            raise RecordError(f"{self.path} is finished and no sound checkpoint is left of it: {ELSEWHERE}")
        kept = lines[:rounds]
        records = list(read_rounds(path, kept))
        there, here = settings_in(self.path), flat(tomllib.loads(config))
        every = here.get("evaluation.every", here.get("federation.evaluate_every", 1))
        with written_or_said(path):
            if kept and there[ROUNDS_KEY] != here[ROUNDS_KEY] and rounds % every and "evaluation" in records[-1]:
                warn(
                    f"the evaluation of round {rounds} is no longer on record: it was made because the round was "
                    "the last, which it is not any more"
                )
                kept[-1] = encode_round({k: value for k, value in records[-1].items() if k != "evaluation"})[:-1]
            if there != here:
                write_whole(self.path / CONFIG, config)
            (self.path / FINAL).unlink(missing_ok=True)
            if kept != lines:
                write_whole(path, b"".join(line + b"\n" for line in kept))

    def finish(self, final: Mapping[str, Any]) -> None:
        """Write ``final.json``, whole or not at all."""
        with written_or_said(self.path / FINAL):
            write_whole(self.path / FINAL, json.dumps(final, indent=2, allow_nan=False) + "\n")
            (self.path / LOCK).unlink(missing_ok=True)

    def _lock(self) -> None:
        """Hold the directory until this object is gone or the process ends.

        The lock is the process's own: forked workers that outlive a kill do not keep it.

        Raises:
            BusyError: Another process holds it.
        """
        if fcntl is None:
            return
        handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        weakref.finalize(self, os.close, handle)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"{self.path} is another process's: wait for it, or choose another --out") from None

    def _drop_unfinished_line(self) -> None:
        """Cut off what a kill in the middle of a write left behind the last line break."""
        path = self.path / ROUNDS
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
