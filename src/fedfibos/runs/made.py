"""``environment.json`` of a run: where it was made, and where it was gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedfibos.common.atomic_files import write_whole
from fedfibos.runs.environment import describe
from fedfibos.runs.files import ENVIRONMENT
from fedfibos.runs.own_code import warn_of_changes
from fedfibos.runs.reading import RecordError
from fedfibos.runs.same_experiment import ELSEWHERE
from fedfibos.runs.shapes import ENVIRONMENT_SHAPE
from fedfibos.runs.stored import is_stored, read_object

DEALT = "dealt_sha256"
"""Key of ``environment.json``: digest of who has which examples."""

FITTED = "devices_sha256"
"""Key of ``environment.json``: digest of what the classes of devices can hold, and of which client is of which."""

INITIAL = "initial_sha256"
"""Key of ``environment.json``: digest of the parameters that the run begins with."""


def note_environment(
    run: Path, device: str, own: Mapping[str, Any], warn: Callable[[str], None], began: Mapping[str, str]
) -> None:
    """Record where the run is made; a resumption in another environment is added to it.

    Raises:
        RecordError: The data were dealt otherwise before, or devices could hold something else.
    """
    path = run / ENVIRONMENT
    now = {**describe(device), **own, **began}
    if not path.exists():
        write_whole(path, json.dumps(now, indent=2) + "\n")
        return
    first = read_object(path, ENVIRONMENT_SHAPE)
    resumed = first.pop("resumed", [])
    latest = resumed[-1] if resumed else first
    warn_of_changes(run, latest, own, warn)
    for key, what in (
        (DEALT, "clients had other examples: other data files"),
        (FITTED, "devices held other submodels"),
    ):
        if latest.get(key, began.get(key)) != began.get(key, latest.get(key)):
            raise RecordError(
                f"{run} holds a run whose {what}, or another version of numpy or torch (there {latest.get('numpy')}, "
                f"{latest['torch']}): {ELSEWHERE}"
            )
    if any(latest.get(key) != value for key, value in now.items() if key != "command"):
        write_whole(path, json.dumps({**first, "resumed": [*resumed, now]}, indent=2) + "\n")


def latest_environment(run: Path) -> Mapping[str, Any]:
    """Where a run was last gone on with; nothing where it does not say.

    Raises:
        RecordError: The file is damaged.
    """
    path = run / ENVIRONMENT
    if not is_stored(path):
        return {}
    made = read_object(path, ENVIRONMENT_SHAPE)
    return [made, *made.get("resumed", [])][-1]  # type: ignore[no-any-return]
