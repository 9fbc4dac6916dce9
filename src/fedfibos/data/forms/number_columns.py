"""Columns of a table that are inputs: numbers, or lists of numbers of one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.data.forms.label_columns import Table, column_of, is_list, is_text

LARGEST = torch.finfo(torch.float32).max


def numbers_of(table: Table, names: Sequence[str]) -> Tensor:
    """Columns of numbers side by side, float32; one column of lists as it is.

    Raises:
        ValueError: A column of something else, or a number that is not finite; names the column and the row.
    """
    kinds = [column_of(table, name, "inputs").type for name in names]
    if len(names) == 1 and is_list(kinds[0]):
        return _lists(table, names[0])
    return torch.from_numpy(np.stack([_numbers(table, name) for name in names], axis=1))


def _numbers(table: Table, name: str) -> Any:
    """One column; a number that is not finite would spoil the scale of all the others."""
    import pyarrow

    column = table.rows[name]
    kind = column.type
    if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
        raise ValueError(
            f"{table.where}: column {name!r} must hold numbers to be an input, got {kind}{_first_text(column)}: name "
            "the inputs in data.options.inputs, or a column of texts in text, of images in image"
        )
    values = column.to_numpy()
    _check_finite(table, name, values.astype(np.float64))
    return values.astype(np.float32)


def _check_finite(table: Table, name: str, values: NDArray[np.float64]) -> None:
    wrong = np.argwhere(~(np.abs(values) <= LARGEST))
    if len(wrong):
        first = tuple(wrong[0])
        raise ValueError(
            f"{table.where}: column {name!r} must hold finite numbers of 32 bits, got {values[first]:g} in row "
            f"{first[0]}: fill it in, or leave the row out"
        )


def _first_text(column: Any) -> str:
    """Where the first text is that is no number: one such cell makes a column of numbers one of texts."""
    if not is_text(column.type):
        return ""
    for row, text in enumerate(column.to_pylist()):
        try:
            float(text)
        except ValueError:
            return f", {text!r} in row {row}"
    return ""


def _lists(table: Table, name: str) -> Tensor:
    try:
        array = np.array(table.rows[name].to_pylist(), dtype=np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"{table.where}: column {name!r} must hold lists of numbers of one length each") from None
    _check_finite(table, name, array)
    return torch.from_numpy(array.astype(np.float32))
