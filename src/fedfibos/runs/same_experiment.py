"""Whether the experiment of a run directory is the one that is asked for."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedfibos.common.dotted_keys import flat
from fedfibos.common.formatting import first_line
from fedfibos.common.validation import toml_text
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.runs.files import CONFIG
from fedfibos.runs.reading import RecordError

ROUNDS_KEY = "federation.rounds"
ELSEWHERE = "choose another --out, or pass --overwrite to run anew"

FREE = frozenset(
    {
        "evaluation.batch_size",
        "run.checkpoint_every",
        "run.log",
        "run.client_records",
        "checkpoint.best",
        "federation.bind_keys",  # this and the following: of a Flower app
        "federation.checkpoint_every",
        "federation.log",
        "federation.log_format",
        "federation.client_records",
        "federation.best",
        "federation.metrics_port",
        "federation.metrics_host",
        "federation.deadline",
        "federation.device",
        "federation.min_participants",
        "federation.patience",
        "federation.wait",
    }
)
"""Settings that change no round, or only when one ends: a run may be gone on with under others."""

FLEET_FREE = FREE | {
    "federation.cohort",
    "federation.extra",
    "federation.grow_from",
    "federation.grow_over",
    "federation.measure_every",
    ROUNDS_KEY,
}
"""Those of a fleet, which may grow or shrink, and whose run may end sooner."""


def fixed_settings(config: str) -> dict[str, Any]:
    """The settings, of a fleet's TOML text, that no resumption may change: dotted key -> value."""
    return {key: value for key, value in flat(tomllib.loads(config)).items() if key not in FLEET_FREE}


def settings_digest(run: Path) -> str:
    """By what a checkpoint knows the settings of its run: a run may be gone on with as its own ``config.toml`` says.

    Empty where the file is not there or cannot be read.
    """
    try:
        settings = fixed_settings((run / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def settings_in(run: Path) -> dict[str, Any]:
    """The settings of a run directory: dotted key -> value. Of a simulator's run, settings newer than it included.

    Raises:
        RecordError: The file cannot be read, or is not TOML.
    """
    path = run / CONFIG
    try:
        there = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: it is not valid TOML: {first_line(error)}") from None
    with suppress(ValueError):  # damaged, or a Flower app's: compared as it is
        there = tomllib.loads(to_toml(load_experiment(run)))
    return flat(there)


def check_same(run: Path, config: str, resume: bool, free: Collection[str] = FREE) -> bool:
    """Whether what is in a run directory is gone on with under other settings.

    Args:
        run: The run directory.
        config: The experiment that is asked for, as a TOML text.
        resume: Whether it is to be gone on with.
        free: Settings that may be others then. More rounds may be asked for in any case, unless the learning rate
            follows a schedule over all of them.

    Raises:
        RecordError: They would make it another experiment.
    """
    there, here = settings_in(run), flat(tomllib.loads(config))
    keys = [*here, *(key for key in there if key not in here)]
    keys.sort(key=lambda key: key == ROUNDS_KEY)  # last: it is what a run may be lengthened by
    changed = [key for key in keys if there.get(key) != here.get(key)]
    for key in changed:
        scheduled = key == ROUNDS_KEY and here.get("local.schedule") == "cosine"
        if resume and not scheduled and (key in free or (key == ROUNDS_KEY and _longer(there, here))):
            continue
        old, new = (toml_text(d[key]) if key in d else "not set" for d in (there, here))
        why = ""
        if scheduled:
            why = " (a cosine schedule is over all rounds: with more, the first would have been others)"
        raise RecordError(f"{run} holds another experiment: {key} is {old} there, got {new}{why}: {ELSEWHERE}")
    return bool(changed)


def _longer(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether there are more rounds now."""
    before, now = there.get(ROUNDS_KEY), here.get(ROUNDS_KEY)
    return isinstance(before, int) and isinstance(now, int) and before < now
