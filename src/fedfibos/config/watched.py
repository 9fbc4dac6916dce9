"""Settings of what is looked at while a run goes on: its trackers, and the number that says which round is best."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import BeforeValidator

from fedfibos.common.validation import check_name
from fedfibos.trackers.tracker import Name


def _trackers(value: object) -> object:
    """Different trackers, from one word or several."""
    words = tuple(value) if isinstance(value, list | tuple) else (value,)
    for word in words:
        check_name("log", word, get_args(Name))
    if len(set(words)) < len(words):
        raise ValueError(f"log must be different trackers, got {list(words)}")
    return words


Trackers = Annotated[tuple[Name, ...], BeforeValidator(_trackers)]


PLACES = {"global": ("full", "submodels"), "local": ("mean", "by_capacity", "adjusted"), "": ("full", "submodels")}
"""What there is of a metric on the whole test set, and of the first one on the clients' own examples."""


def checked_metric(path: str) -> str:
    """The name of a round's number, which it can be whatever the task.

    Raises:
        ValueError: It can be none.
    """
    head, dot, rest = path.partition(".")
    kind = head.partition("_")[0] if head.startswith(("global_", "local_")) else ""
    if path == "loss" or (head and dot and rest.partition(".")[0] in PLACES[kind]):
        return path
    wanted = "loss, or a metric's, such as local_accuracy.mean, global_accuracy.full or macro_f1.submodels.mean"
    raise ValueError(f"a number of a round must be {wanted}, got {path!r}")
