"""Which files are a run directory's own, and how they are removed without touching others."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedfibos.runs.reading import RecordError

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
ROUNDS = "rounds.jsonl"
FINAL = "final.json"
EVALUATION = "evaluation.json"
AUDIT = "audit.json"
DIAGNOSIS = "diagnosis.json"
CLIENT_TABLE = "clients.parquet"
PARTITION = "partition.json"
LOCK = ".lock"

CODE = "code"
"""Folder of the copies of a user's own modules."""

TRACKED = ("tensorboard", "wandb", "mlruns")
"""Folders of trackers (:mod:`fedfibos.trackers`)."""

CHECKPOINT = "checkpoint"
"""Folder of the checkpoints."""

CLIENTS = "clients"
"""Folder of what the clients hold, where scores are with them."""

VARIATES = "variates"
"""Folder, within either, of the clients' control variates."""

OWN = (CONFIG, ENVIRONMENT, ROUNDS, FINAL, EVALUATION, AUDIT, DIAGNOSIS, CLIENT_TABLE, PARTITION)


def begun(run: Path) -> bool:
    """Whether there is something of a run: a round on record, results or a checkpoint."""
    rounds = run / ROUNDS
    return (
        (run / FINAL).exists()
        or any((run / CHECKPOINT).glob("round-*"))
        or (rounds.is_file() and b"\n" in rounds.read_bytes())
    )


def foreign(run: Path) -> bool:
    """Whether a folder has files of something else, and none of a run's."""
    return run.exists() and not (run / CONFIG).exists() and any(not temporary(path) for path in run.iterdir())


def temporary(path: Path) -> bool:
    """Whether it is the lock, or what a kill left of a file that was being written."""
    return path.name == LOCK or (path.name.startswith(".") and path.name.endswith(".tmp"))


def remove_own(run: Path) -> None:
    """Remove what a run wrote but for its lock; other files stay, and so do the folders that they are in."""
    for name in OWN:
        (run / name).unlink(missing_ok=True)
    for name in (CODE, *TRACKED):
        shutil.rmtree(run / name, ignore_errors=True)
    for path in [*(run / CHECKPOINT).glob("round-*"), *(run / CHECKPOINT).glob(".round-*.tmp")]:
        if path.name.strip(".").removeprefix("round-").removesuffix(".tmp").isdecimal():
            shutil.rmtree(path)
    variates = (run / CHECKPOINT / VARIATES, run / CLIENTS / VARIATES)
    for folder in (run / CHECKPOINT / "rows", run / CLIENTS, *variates):
        for path in [*folder.glob("*.safetensors"), *folder.glob(".*.tmp")]:
            path.unlink()
    for folder in (*variates, run / CHECKPOINT / "rows", run / CHECKPOINT, run / CLIENTS):
        with suppress(OSError):  # not there, or not empty
            folder.rmdir()
    for path in run.iterdir():
        if temporary(path) and path.name != LOCK:
            path.unlink()


@contextmanager
def written_or_said(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into one line that names the file."""
    try:
        yield
    except OSError as error:
        why = error.strerror or errno.errorcode.get(error.errno or 0, "refused")
        raise RecordError(f"{path} cannot be written: {why}; what is on record is unharmed") from error
