"""What a task wants of the examples' targets, and columns and arrays made that, or refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Kind = Literal["classes", "marks", "numbers", "maps", "tokens", "any"]
"""One class an example; 0 or 1 for every label; numbers; a class for every pixel; the input's own token ids; and what
a task of the user's own takes: as it lies."""

SAID = {
    "classes": "one class an example, text or a whole number",
    "marks": "0 or 1 for every label, a column each",
    "numbers": "one number an example, or several",
    "maps": "a class for every pixel, whole numbers of shape (height, width)",
    "tokens": "token ids, whole numbers of one length",
    "any": "text, numbers, or arrays of numbers of one shape",
}


@dataclass(frozen=True)
class Wanted:
    """What a task wants as targets.

    Attributes:
        kind: See :data:`Kind`.
        task: The task's name, for messages.
        ignore: Of ``maps``: the value of pixels that are of no class.
    """

    kind: Kind = "classes"
    task: str = "classification"
    ignore: int = -100

    def refusal(self, where: str, got: str) -> ValueError:
        """The error of targets that are not what the task wants."""
        return ValueError(
            f"{where} must be {SAID[self.kind]}, as task.name = {self.task!r} wants, got {got}{self._else()}"
        )

    def _else(self) -> str:
        """The next step."""
        if self.kind == "classes":
            return "; numbers are predicted by task.name = 'regression', many labels at once by 'multilabel'"
        return ""


CLASSES = Wanted()


@dataclass(frozen=True)
class Targets:
    """What is to be learnt of every example.

    Attributes:
        values: Labels, text or whole numbers, which are numbered later; or a tensor, which is what the task wants.
        classes: Names of the classes that whole numbers are positions in; None: the labels that occur are the classes,
            and of a tensor there are none.
    """

    values: Sequence[Any] | Tensor
    classes: tuple[str, ...] | None = None


def targets_of(array: NDArray[Any], wanted: Wanted, where: str) -> Targets:
    """Targets of an array, one row an example; a single column counts as none.

    Args:
        array: Of any dtype and shape ``(n, ...)``.
        wanted: What the task wants.
        where: What messages call it.

    Raises:
        ValueError: It is not what the task wants.
    """
    got = f"{array.dtype} of shape {array.shape}"
    kind = wanted.kind
    if array.dtype == object or array.dtype.kind not in "biufU":
        raise wanted.refusal(where, got)
    if array.ndim == 2 and array.shape[1] == 1 and kind != "marks":
        array = array[:, 0]
    is_whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool((array == np.floor(array)).all()))
    if kind == "any":
        return _as_it_lies(array, is_whole)
    fits = {
        "classes": array.ndim == 1 and (array.dtype.kind == "U" or is_whole),
        "marks": array.ndim == 2 and array.dtype.kind != "U" and bool(((array == 0) | (array == 1)).all()),
        "numbers": array.ndim <= 2 and array.dtype.kind != "U",
        "maps": array.ndim >= 3 and array.dtype.kind in "iu",
        "tokens": array.ndim == 2 and array.dtype.kind in "iu",
    }
    if not fits[kind]:
        if kind == "marks" and array.ndim == 2 and array.dtype.kind != "U":
            got = f"{array[(array != 0) & (array != 1)][0]:g}"
        raise wanted.refusal(where, got)
    if kind == "classes":
        return Targets(array.tolist() if array.dtype.kind == "U" else array.astype(np.int64).tolist())
    if kind in ("maps", "tokens"):
        values = torch.from_numpy(array.astype(np.int64))
        known = values[values != wanted.ignore] if kind == "maps" else None
        return Targets(values, None if known is None else numbered(int(known.max()) + 1 if len(known) else 1))
    return Targets(torch.from_numpy(array.astype(np.float32)), numbered(array.shape[1]) if kind == "marks" else None)


def numbered(number: int) -> tuple[str, ...]:
    """Names of classes that have none: ``0``, ``1`` and so on."""
    return tuple(map(str, range(number)))


def _as_it_lies(array: NDArray[Any], is_whole: bool) -> Targets:
    """Of a task of the user's own: text is numbered, whole numbers are int64, others float32.

    Whole numbers that are 0, 1, ... without a gap may be classes: they keep names.
    """
    if array.dtype.kind == "U":
        return Targets(array.tolist())
    if array.ndim > 1 or not is_whole:
        return Targets(torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)))
    values = torch.from_numpy(array.astype(np.int64))
    found = values.unique()
    in_order = len(found) > 1 and torch.equal(found, torch.arange(len(found)))
    return Targets(values, numbered(len(found)) if in_order else None)
