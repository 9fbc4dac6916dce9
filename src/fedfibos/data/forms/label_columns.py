"""Columns of an Arrow table as targets and owners; gaps and mixed types are refused, by column and row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedfibos.common.validation import did_you_mean, listed
from fedfibos.data.forms.rows import Names
from fedfibos.data.forms.targets import Targets, Wanted, targets_of

FEW = 12
"""Columns that a message lists."""


GAPS = ("", "nan", "NaN", "<NA>", "#N/A", "null", "NULL")
"""Texts that programs write where there is no value."""


@dataclass(frozen=True)
class Table:
    """An Arrow table and what messages call it.

    Attributes:
        rows: A ``pyarrow.Table``.
        where: Its file.
        folder: Where files that it names lie.
    """

    rows: Any
    where: str
    folder: Path


def column_of(table: Table, name: str, what: str) -> Any:
    """A column without gaps."""
    names = table.rows.column_names
    if name not in names:
        known = listed(names) if len(names) <= FEW else f"one of its {len(names)} columns"
        raise ValueError(f"{table.where}: data.options.{what} must be {known}, got {name!r}{did_you_mean(name, names)}")
    column = table.rows[name]
    if column.null_count:
        row = next(row for row, value in enumerate(column) if not value.is_valid)
        raise ValueError(
            f"{table.where}: column {name!r} must have no gaps, got {column.null_count}, the first in row {row}"
        )
    return column


def labels_of(table: Table, name: str, what: str) -> Names:
    """Text or whole numbers."""
    import pyarrow

    column = column_of(table, name, what)
    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    values: list[Any] = column.to_pylist()
    if pyarrow.types.is_integer(kind):
        return values
    if pyarrow.types.is_boolean(kind):
        return [str(value).lower() for value in values]
    if is_text(kind):
        for gap in GAPS:
            if gap in values:
                raise ValueError(
                    f"{table.where}: column {name!r} must have no gaps, got {gap!r} in row {values.index(gap)}"
                )
        return values
    if pyarrow.types.is_floating(kind) and all(float(value).is_integer() for value in values):
        return [int(value) for value in values]
    more = "; numbers are predicted by task.name = 'regression'" if what == "label" else ""
    raise ValueError(
        f"{table.where}: column {name!r} must hold text or whole numbers, one {what} a row, got {kind}{more}"
    )


def targets_of_tables(
    tables: Sequence[Table], names: tuple[str, ...], wanted: Wanted, classes: tuple[str, ...] | None
) -> Targets:
    """What is to be learnt, from the columns that hold it.

    Args:
        tables: Of training and of test examples, or one.
        names: The columns.
        wanted: What the task wants.
        classes: Names of the classes that whole numbers are positions in, where the columns name them.

    Raises:
        ValueError: Columns that are not what the task wants; one line.
    """
    where = f"{tables[0].where}: " + ("columns " if len(names) > 1 else "column ") + listed_columns(names)
    if len(names) == 1 and (wanted.kind == "classes" or _is_named(tables[0], names[0], wanted)):
        return Targets(labels_of_tables(tables, names[0], "label"), classes)
    if wanted.kind == "classes":
        raise wanted.refusal(where, f"{len(names)} columns")
    if len(names) == 1 and wanted.kind == "marks" and is_list(column_of(tables[0], names[0], "label").type):
        return _marks([row for table in tables for row in table.rows[names[0]].to_pylist()], wanted, where, classes)
    array = np.concatenate([_array(table, names, wanted) for table in tables])
    found = targets_of(array, wanted, where)
    return Targets(found.values, names) if wanted.kind == "marks" else found


def labels_of_tables(tables: Sequence[Table], name: str, what: str) -> Names:
    """Labels, or owners, of training and test examples; of one type."""
    values: list[Any] = [value for table in tables for value in labels_of(table, name, what)]
    if len({type(value) for value in values}) > 1:
        raise ValueError(
            f"{tables[1].where}: the {what} column must have the type that it has in {tables[0].where}, one has "
            "text and the other numbers"
        )
    return values


def listed_columns(names: Sequence[str]) -> str:
    """``'a', 'b'``."""
    return ", ".join(map(repr, names))


def _is_named(table: Table, name: str, wanted: Wanted) -> bool:
    """Whether a column of a task of the user's own is text, or truth values: classes, then."""
    import pyarrow

    kind = column_of(table, name, "label").type
    of = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return wanted.kind == "any" and bool(is_text(of) or pyarrow.types.is_boolean(of))


def _array(table: Table, names: tuple[str, ...], wanted: Wanted) -> NDArray[Any]:
    """The columns side by side, shape ``(n, k)``; one column as it is, of lists with all their dimensions."""
    import pyarrow

    columns = []
    for name in names:
        column = column_of(table, name, "label")
        kind, where = column.type, f"{table.where}: column {name!r}"
        if is_list(kind) and len(names) == 1:
            return _nested(column.to_pylist(), wanted, where)
        if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
            raise wanted.refusal(where, str(kind))
        columns.append(np.asarray(column.to_numpy()))
    return np.stack(columns, axis=1) if len(names) > 1 else columns[0]


def _nested(rows: list[Any], wanted: Wanted, where: str) -> NDArray[Any]:
    try:
        return np.array(rows)
    except ValueError:
        raise wanted.refusal(where, "lists of several lengths") from None


def _marks(rows: list[Any], wanted: Wanted, where: str, classes: tuple[str, ...] | None) -> Targets:
    """Lists of 0 and 1, one for every label; or of the labels that an example has."""
    lengths = {len(row) for row in rows}
    if len(lengths) == 1 and any(len(set(row)) < len(row) for row in rows):
        return targets_of(_nested(rows, wanted, where), wanted, where)
    found = {label for row in rows for label in row}
    if len({type(label) for label in found}) != 1 or not isinstance(next(iter(found)), str | int):
        raise wanted.refusal(where, "lists of no labels" if not found else "lists of other values")
    known = sorted(found) if classes is None else range(len(classes))
    place = {label: position for position, label in enumerate(known)}
    if wrong := [label for label in found if label not in place]:
        raise ValueError(f"{where} must hold labels in 0..{len(place) - 1}, got {wrong[0]!r}")
    marks = torch.zeros(len(rows), len(place))
    for row, labels in enumerate(rows):
        marks[row, [place[label] for label in labels]] = 1.0
    return Targets(marks, tuple(map(str, known)) if classes is None else classes)


def is_text(kind: Any) -> bool:
    """Whether a type of Arrow's is text."""
    import pyarrow

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Whether a type of Arrow's is a list of values, of any or one length."""
    import pyarrow

    kinds = pyarrow.types
    if isinstance(kind, pyarrow.ExtensionType):
        kind = kind.storage_type
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))
