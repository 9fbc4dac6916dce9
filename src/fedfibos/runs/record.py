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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps two processes from one directory
    fcntl = None  # type: ignore[assignment]

from fedfibos.common.atomic_files import write_whole
from fedfibos.common.dotted_keys import flat
from fedfibos.common.user_code import is_own, module_file, source_sha256
from fedfibos.common.validation import shown
from fedfibos.config.experiment import Experiment, load_experiment, to_toml
from fedfibos.runs.environment import describe

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
ROUNDS = "rounds.jsonl"
FINAL = "final.json"
EVALUATION = "evaluation.json"
DEALT = "dealt_sha256"
"""Key of ``environment.json``: digest of who has which examples."""

INITIAL = "initial_sha256"
"""Key of ``environment.json``: digest of the parameters that the run begins with."""

CODE = "code"
"""Folder of the copies of a user's own modules."""

LOCK = ".lock"
ROUNDS_KEY = "federation.rounds"

FREE = frozenset(
    {
        "evaluation.batch_size",
        "run.checkpoint_every",
        "federation.checkpoint_every",  # this and the following: of a Flower app
        "federation.deadline",
        "federation.device",
        "federation.min_participants",
        "federation.wait",
    }
)
"""Settings that change no round, or only when one ends: a run may be gone on with under others."""


def fixed_settings(config: str) -> dict[str, Any]:
    """The settings, of a TOML text, that no resumption may change: dotted key -> value."""
    return {key: value for key, value in flat(tomllib.loads(config)).items() if key not in FREE and key != ROUNDS_KEY}


class RecordError(RuntimeError):
    """A run directory that cannot be used or written; the message is one line."""


class BusyError(RecordError):
    """A run directory that another process is writing."""


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
        experiment: Experiment | str,
        resume: bool,
        device: str = "cpu",
        warn: Callable[[str], None] = lambda text: None,
        began: Mapping[str, str] | None = None,
    ) -> RunDirectory:
        """Start a run directory, or go on with one, of which only its environment is noted before :meth:`go_on`.

        Args:
            out: The directory; made if it is not there. With ``resume`` it may also be new or empty.
            experiment: What is run: an experiment, or the text of a TOML file that says it.
            resume: Whether a run of the same experiment that is already there is continued; with other values of
                :data:`FREE` too, and with more rounds than it had, unless its learning rate follows a schedule over
                all of them (``cosine``).
            device: ``cpu`` or ``cuda``, for ``environment.json``.
            warn: Told where the user's own code has changed since.
            began: Digests of what the run begins with, for ``environment.json``: :data:`DEALT`, :data:`INITIAL`.

        Raises:
            RecordError: It holds another experiment (names the first key that differs), a run of the same one while
                ``resume`` is not given or whose data were dealt otherwise, other files, is another process's, or cannot
                be written.
        """
        directory = cls(out)
        config = experiment if isinstance(experiment, str) else to_toml(experiment)
        with _one_line(out):
            there, changed = (out / CONFIG).exists(), False
            if there:
                changed = directory._check_same(config, resume)
                if not resume:
                    state = "a finished" if (out / FINAL).exists() else "an unfinished"
                    raise RecordError(
                        f"{out} holds {state} run of this experiment: pass --resume or choose another --out"
                    )
            elif out.exists() and any(not _temporary(path) for path in out.iterdir()):
                raise RecordError(f"{out} is not empty and no run directory: choose another --out")
            out.mkdir(parents=True, exist_ok=True)
            directory._lock()
            if not there:
                write_whole(out / CONFIG, config)
            if changed or not (out / FINAL).exists():  # nothing is made of a finished run
                directory._note_environment(device, own_code(experiment), warn, began or {})
                directory._keep_code(experiment)
            directory._drop_unfinished_line()
        return directory

    def _keep_code(self, experiment: Experiment | str) -> None:
        """Copies of the modules that the experiment names: a run is looked at from elsewhere too, and later."""
        for name in [] if isinstance(experiment, str) else _own_names(experiment).values():
            if (found := module_file(name)) is not None:
                file, place = found
                (self.path / CODE / place).parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.path / CODE / place, file.read_bytes())

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Add a round's line, and have it on the disk when this returns.

        Raises:
            RecordError: It could not be written (no space, say); the lines before it are as they were.
        """
        path = self.path / ROUNDS
        line = _json_line(record)
        # Unbuffered: closing the file after a failure must not try to write what is left once more.
        with _one_line(path), path.open("ab", buffering=0) as file:
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
        if not path.exists():
            return []
        records = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise RecordError(f"{path}: line {number} is damaged: {error}") from None
            if not isinstance(record, dict) or record.get("round") != number:
                raise RecordError(f"{path}: line {number} must be the object of round {number}, got {line[:60]}")
            records.append(record)
        return records

    def go_on(self, rounds: int, experiment: Experiment | str, warn: Callable[[str], None] = lambda text: None) -> None:
        """Keep the first ``rounds`` rounds, those that a checkpoint knows of, and forget how the run ended.

        An evaluation that was made only because its round was the last goes too, with a warning: an uninterrupted run
        of as many rounds would not have it.

        Args:
            rounds: Finished rounds that are gone on from; 0 without a checkpoint.
            experiment: As in :meth:`open`; what the record says from now on.
            warn: Called with what is to be known, in one line.

        Raises:
            RecordError: Fewer are on record, or the run is finished and no checkpoint is left of it.
        """
        records = self.rounds()
        path = self.path / ROUNDS
        if len(records) < rounds:
            raise RecordError(f"{path}: the checkpoint is of round {rounds}, got only {len(records)} rounds on record")
        if not rounds and (self.path / FINAL).exists():
            raise RecordError(f"{self.path} is finished and no sound checkpoint is left of it: choose another --out")
        kept = records[:rounds]
        config = experiment if isinstance(experiment, str) else to_toml(experiment)
        there, here = self._config(), flat(tomllib.loads(config))
        with _one_line(path):
            every = here.get("evaluation.every", here.get("federation.evaluate_every", 1))
            if kept and there[ROUNDS_KEY] != here[ROUNDS_KEY] and rounds % every:
                if "evaluation" in kept[-1]:
                    warn(
                        f"the evaluation of round {rounds} is no longer on record: it was made because the round was "
                        "the last, which it is not any more"
                    )
                kept[-1] = {key: value for key, value in kept[-1].items() if key != "evaluation"}
            if there != here:
                write_whole(self.path / CONFIG, config)
            (self.path / FINAL).unlink(missing_ok=True)
            if kept != records:
                write_whole(path, b"".join(map(_json_line, kept)))

    def finish(self, final: Mapping[str, Any]) -> None:
        """Write ``final.json``, whole or not at all."""
        with _one_line(self.path / FINAL):
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

    def _config(self) -> dict[str, Any]:
        """The settings that are here: dotted key -> value. Of a simulator's run, settings newer than it included."""
        path = self.path / CONFIG
        try:
            there = tomllib.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RecordError(f"{path}: is not valid TOML: {error}") from None
        with suppress(ValueError):  # damaged, or a Flower app's: compared as it is
            there = tomllib.loads(to_toml(load_experiment(self.path)))
        return flat(there)

    def _check_same(self, config: str, resume: bool) -> bool:
        """Whether what is here is gone on with under other settings.

        Raises:
            RecordError: They would make it another experiment.
        """
        there, here = self._config(), flat(tomllib.loads(config))
        keys = [*here, *(key for key in there if key not in here)]
        keys.sort(key=lambda key: key == ROUNDS_KEY)  # last: it is what a run may be lengthened by
        changed = [key for key in keys if there.get(key) != here.get(key)]
        for key in changed:
            if resume and (key in FREE or (key == ROUNDS_KEY and _longer(there, here))):
                continue
            old, new = (shown(d[key]) if key in d else "not set" for d in (there, here))
            why = ""
            if key == ROUNDS_KEY and here.get("local.schedule") == "cosine":
                why = " (a cosine schedule is over all rounds: with more, the first would have been others)"
            raise RecordError(
                f"{self.path} holds another experiment: {key} is {old} there, got {new}{why}: choose another --out"
            )
        return bool(changed)

    def _note_environment(
        self, device: str, own: Mapping[str, Any], warn: Callable[[str], None], began: Mapping[str, str]
    ) -> None:
        """Record where the run is made; a resumption in another environment is added to it.

        Raises:
            RecordError: The data were dealt otherwise before.
        """
        path = self.path / ENVIRONMENT
        now = {**describe(device), **own, **began}
        if not path.exists():
            write_whole(path, json.dumps(now, indent=2) + "\n")
            return
        first = json.loads(path.read_text(encoding="utf-8"))
        resumed = first.pop("resumed", [])
        latest = resumed[-1] if resumed else first
        warn_of_changes(self.path, latest, own, warn)
        if latest.get(DEALT, began.get(DEALT)) != began.get(DEALT, latest.get(DEALT)):
            raise RecordError(
                f"{self.path} holds a run whose clients had other examples: other data files, or another version of "
                f"numpy or torch (there {latest['numpy']}, {latest['torch']}): choose another --out"
            )
        if any(latest.get(key) != value for key, value in now.items() if key != "command"):
            write_whole(path, json.dumps({**first, "resumed": [*resumed, now]}, indent=2) + "\n")

    def _drop_unfinished_line(self) -> None:
        """Cut off what a kill in the middle of a write left behind the last line break."""
        path = self.path / ROUNDS
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)


def _longer(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether there are more rounds now and the first ones are as they were."""
    before, now = there.get(ROUNDS_KEY), here.get(ROUNDS_KEY)
    return isinstance(before, int) and isinstance(now, int) and before < now and here.get("local.schedule") != "cosine"


def warn_of_changes(run: Path, latest: Mapping[str, Any], own: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """Name the files of a user's own code that are not those that a run's environment tells of."""
    for name in changed_code(latest, own):
        warn(f"the file of {name} has changed since {run} was last run: this may be another experiment")


def changed_code(latest: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Names of a user's own code whose file is not the one that an environment tells of."""
    known = latest.get("own", {})
    return [name for name, digest in own.get("own", {}).items() if known.get(name) != digest]


def latest_environment(run: Path) -> Mapping[str, Any]:
    """Where a run was last gone on with; nothing where it does not say."""
    path = run / ENVIRONMENT
    if not path.is_file():
        return {}
    made: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return [made, *made.get("resumed", [])][-1]  # type: ignore[no-any-return]


def own_code(experiment: Experiment | str) -> dict[str, Any]:
    """What of a run is the user's own code: name -> SHA-256 of its file; nothing where there is none."""
    if isinstance(experiment, str):
        return {}
    sources = {name: source_sha256(key, name) for key, name in _own_names(experiment).items()}
    return {"own": sources} if sources else {}


def _own_names(experiment: Experiment) -> dict[str, str]:
    names = {"data.name": experiment.data.name, "model.name": experiment.model.name}
    names["method.name"] = experiment.method.name
    return {key: name for key, name in names.items() if is_own(name)}


def _json_line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _temporary(path: Path) -> bool:
    return path.name == LOCK or (path.name.startswith(".") and path.name.endswith(".tmp"))


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror}; what is on record is unharmed") from error
