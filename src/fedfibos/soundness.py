"""What may enter the server: looked at here, once, wherever it comes from.

An upload is looked at before it is added to anything, in one pass over each of its tensors. What a merge makes is
looked at before it replaces the parameters and the state that were there. Rows of clients are looked at as they are put
(:mod:`fedfibos.scores.rows`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedfibos.backend.reductions import all_finite, extremes, zero_outside
from fedfibos.method import Method, Signed, answer
from fedfibos.params import Params
from fedfibos.tasks.classification import CLASSIFICATION
from fedfibos.tasks.task import Task
from fedfibos.types import NO_ESTIMATE, Client, State, Upload

LARGEST = torch.finfo(torch.float32).max

LARGE = 1e15
"""Values below it have never made a merge infinite by themselves: products of two are still floats."""


class NoUploadError(RuntimeError):
    """A round gives nothing to go on with: every client was rejected, or the merge was. What was before it stays.

    Attributes:
        rejected: Client -> why, of those whose uploads it is due to.
        bytes_down: Bytes that were sent to clients all the same.
        bytes_up: Bytes that came from them.
    """

    bytes_down = bytes_up = 0

    def __init__(self, message: str, rejected: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rejected = dict(rejected or {})


class NotFiniteMergeError(NoUploadError):
    """Uploads that are finite, each of them, gave parameters or a state that are not."""


class Look(NamedTuple):
    """What is seen of an upload: why it must not be counted (None: it is sound), and its largest magnitude."""

    reason: str | None
    largest: float


def signed_by(method: Method, task: Task = CLASSIFICATION) -> frozenset[str]:
    """What may be below 0 in uploads: of ``loss`` and ``statistic``, those that the method says, or the task."""
    signed = frozenset(method.signed) if isinstance(method, Signed) else frozenset()
    return signed | {"loss"} if task.signed else signed


def averageable(cohort: Iterable[Client]) -> float:
    """The largest value that an upload may hold: whatever the others hold, no sum of the cohort's overflows."""
    return LARGEST / sum((1.0 + client.weight for client in cohort), start=1.0)


def look_at(upload: Upload, most: float = LARGEST, signed: Collection[str] = ()) -> Look:
    """Look at an upload before it enters the server.

    Args:
        upload: What a client sent, of the right shapes.
        most: Its largest possible magnitude; see :func:`averageable`.
        signed: What of it may be below 0; see :func:`signed_by`.

    Returns:
        The reason names what is impossible: a value that is not finite or too large, a loss or a statistic below 0
        (cross-entropies and means of squares are none), an update where the client holds nothing.
    """
    loss, largest = float(upload.loss), 0.0
    for name, tensor in (("update", upload.delta), ("statistic", upload.statistic)):
        if tensor is None:
            continue
        low, high = extremes(tensor)
        if not math.isfinite(low) or not math.isfinite(high):
            bad = int((~torch.isfinite(tensor)).sum())
            return Look(f"its {name} has {bad} values that are not finite (training loss {loss:g})", math.inf)
        if name == "statistic" and low < 0 and name not in signed and (below := _below(upload, tensor)):
            why = f"its statistic has {below} values below 0, down to {low:.3g}: a mean of squares has none"
            return Look(why, -low)
        largest = max(largest, -low, high)
        if largest > most:
            return Look(f"its {name} has values up to {largest:.3g}, too large to average", largest)
    held = upload.submodel.held if upload.counted is None else upload.counted
    if held is not None and not zero_outside(upload.delta, held):
        return Look("its update is not 0 where it holds nothing", largest)
    if not math.isfinite(loss):
        return Look(f"its training loss is {loss:g}", largest)
    if loss < 0 and "loss" not in signed:
        return Look(f"its training loss is {loss:g}: a cross-entropy is at least 0", largest)
    return Look(None, largest)


def _below(upload: Upload, statistic: Tensor) -> int:
    """How many of a statistic's values are below 0 and do not say that there is no estimate."""
    below = statistic < 0
    return int((below & (statistic != NO_ESTIMATE) if upload.observed == "units" else below).sum())


def fault(upload: Upload, most: float = LARGEST, signed: Collection[str] = ()) -> str | None:
    """Why an upload must not be averaged; None when it is sound. See :func:`look_at`."""
    return look_at(upload, most, signed).reason


def first_state(method: Method, params: Params) -> State:
    """The state that a method starts from, once it and the parameters are known to be finite.

    Raises:
        ValueError: They are not.
    """
    if what := _not_finite(State(), params):
        raise ValueError(f"the initial parameters must be finite, got {what}")
    state: State = answer("init", method.init(params), State)
    if what := _not_finite(state, params):
        raise ValueError(f"the state of {type(method).__name__}.init must be finite, got {what}")
    return state


def check_merged(state: State, params: Params, largest: Mapping[int, float]) -> None:
    """Refuse a merge that is not finite.

    Args:
        state: The state that the merge gave; its rows were looked at as they were put.
        params: The parameters that it gave.
        largest: Client -> largest magnitude of its upload, of all that were added.

    Raises:
        NotFiniteMergeError: A value of either is not; names the clients of the largest uploads.
    """
    if what := _not_finite(state, params):
        most, rejected = max(largest.values(), default=0.0), {}
        if most < LARGE:
            whose = f"no upload has values above {most:.3g}: the method's own arithmetic made it"
        else:
            clients = [client for client, size in largest.items() if size >= most / 2]
            whose = f"the largest uploads are of client {', '.join(map(str, clients))} (values up to {most:.3g})"
            rejected = dict.fromkeys(clients, "with its values the merge is not finite")
        raise NotFiniteMergeError(f"the merge gave {what}; it is refused, what was before it stays; {whose}", rejected)


def _not_finite(state: State, params: Params) -> str | None:
    """The first tensor of either that is not finite, and how many of its values."""
    if not all_finite(params.flat):
        for name, tensor in params.tensors().items():
            if bad := _bad(tensor):
                return f"{bad} values of parameter {name!r} that are not finite"
    for name, tensor in state.tensors.items():
        if tensor.is_floating_point() and not all_finite(tensor) and (bad := _bad(tensor)):
            return f"{bad} values of the state's {name!r} that are not finite"
    return None


def _bad(tensor: Tensor) -> int:
    return int((~tensor.isfinite()).sum())
