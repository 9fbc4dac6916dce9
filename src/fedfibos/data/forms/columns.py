"""Columns of an Arrow table as labels, owners and inputs; gaps and mixed types are refused, by column and row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfibos.common.validation import did_you_mean, listed
from fedfibos.data.forms.pictures import Colour, Size, decode_pictures
from fedfibos.data.forms.rows import Names, Rows, Share, SplitSeed, split_of
from fedfibos.data.split import Split

FEW = 12
"""Columns that a message lists."""


@dataclass(frozen=True)
class TableOptions:
    """Which column is what, and which rows are for testing.

    Attributes:
        label: Column of the classes: text, or whole numbers.
        inputs: Columns of numbers that the model reads; without it, and without ``text`` and ``image``, every column
            but the label and the owner.
        text: Column of texts, in place of ``inputs``.
        image: Column of images, encoded or as names of files beside the table, in place of ``inputs``.
        owner: Column that says whose an example is; ``data.partition.scheme = "natural"`` makes each owner a client.
        test: Table of the test examples, a file beside the first; of a ``datasets`` folder the name of the split, by
            default ``test``.
        test_share: Where there is no test table: share of every owner's examples, or every class's where there are no
            owners, that is drawn for testing.
        split_seed: Of that draw.
        standardise: Whether each column of numbers gets mean 0 and deviation 1 over the training examples.
        delimiter: Between the values of a line (``csv``).
        size: Height and width that every image is scaled to; without it they must have one size.
        colour: ``grey`` or ``rgb``; without it, grey where all images are.
        crop_and_flip: Whether training images are cropped and mirrored at random.
    """

    label: str = "label"
    inputs: tuple[str, ...] | None = None
    text: str | None = None
    image: str | None = None
    owner: str | None = None
    test: str | None = None
    test_share: Share = 0.2
    split_seed: SplitSeed = 0
    standardise: bool = True
    delimiter: str = ","
    size: Size | None = None
    colour: Colour | None = None
    crop_and_flip: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("inputs", "text", "image") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{given[1]} must not be given beside {given[0]}: a model reads one of them")
        if len(self.delimiter) != 1:
            raise ValueError(f"delimiter must be one character, got {self.delimiter!r}")
        if self.inputs is not None and (not self.inputs or len(set(self.inputs)) < len(self.inputs)):
            raise ValueError(f"inputs must be different columns, one at least, got {list(self.inputs)}")


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


def split_of_tables(tables: Sequence[Table], options: TableOptions, classes: tuple[str, ...] | None = None) -> Split:
    """The split of a table, or of one of training and one of test examples.

    Args:
        tables: One or two.
        options: Which column is what.
        classes: Names of the classes that whole numbers are positions in; None: the labels that occur.

    Raises:
        ValueError: A column that is missing, has gaps or another type; one line.
    """
    for table in tables:
        names = table.rows.column_names
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{table.where}: columns must have different names, got {twice[0]!r} twice")
        if not table.rows.num_rows:
            raise ValueError(f"{table.where}: it must have examples, got none")
    labels: list[Any] = [label for table in tables for label in _labels(table, options.label, "label")]
    owners = None
    if options.owner is not None:
        owners = [owner for table in tables for owner in _labels(table, options.owner, "owner")]
    for what, values in (("label", labels), ("owner", owners or [])):
        if len({type(value) for value in values}) > 1:
            raise ValueError(
                f"{tables[1].where}: the {what} column must have the type that it has in {tables[0].where}, one has "
                "text and the other numbers"
            )
    where = tables[0].where
    rows = Rows(_inputs(tables, options), labels, len(tables[0].rows) if len(tables) > 1 else None, owners, classes)
    numbers = isinstance(rows.inputs, Tensor) and rows.inputs.dtype != torch.uint8
    return split_of(
        rows,
        where,
        options.test_share,
        options.split_seed,
        crop_and_flip=options.crop_and_flip,
        standardise=options.standardise and numbers,
    )


def _column(table: Table, name: str, what: str) -> Any:
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


def _labels(table: Table, name: str, what: str) -> Names:
    """Text or whole numbers."""
    import pyarrow

    column = _column(table, name, what)
    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    values: list[Any] = column.to_pylist()
    if pyarrow.types.is_integer(kind):
        return values
    if pyarrow.types.is_boolean(kind):
        return [str(value).lower() for value in values]
    if _is_text(kind):
        if "" in values:
            raise ValueError(f"{table.where}: column {name!r} must have no gaps, got '' in row {values.index('')}")
        return values
    if pyarrow.types.is_floating(kind) and all(float(value).is_integer() for value in values):
        return [int(value) for value in values]
    raise ValueError(f"{table.where}: column {name!r} must hold text or whole numbers, one {what} a row, got {kind}")


def _inputs(tables: Sequence[Table], options: TableOptions) -> Tensor | tuple[str, ...]:
    if options.text is not None:
        return tuple(text for table in tables for text in _texts(table, options.text))
    names = options.inputs
    image = options.image
    if names is None and image is None:
        columns = tables[0].rows.column_names
        rest = tuple(name for name in columns if name not in (options.label, options.owner))
        encoded = [name for name in rest if _is_encoded(tables[0].rows.schema.field(name).type)]
        image = encoded[0] if len(encoded) == 1 else None
        names = rest
    if image is not None:
        return _images(tables, image, options)
    if not names:
        raise ValueError(f"{tables[0].where}: it must have a column of inputs beside the label, got none")
    if options.size is not None or options.colour is not None:
        raise ValueError(
            f"{tables[0].where}: data.options.size and colour are for images, name their column with image"
        )
    return torch.cat([_numbers(table, names) for table in tables])


def _numbers(table: Table, names: Sequence[str]) -> Tensor:
    """Columns of numbers side by side, float32; one column of lists as it is."""
    import pyarrow

    kinds = [_column(table, name, "inputs").type for name in names]
    if len(names) == 1 and _is_list(kinds[0]):
        return _lists(table, names[0])
    for name, kind in zip(names, kinds, strict=True):
        if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)):
            raise ValueError(
                f"{table.where}: column {name!r} must hold numbers to be an input, got {kind}: name the inputs in "
                "data.options.inputs, or a column of texts in text, of images in image"
            )
    columns = [np.asarray(table.rows[name].to_numpy(), dtype=np.float32) for name in names]
    return torch.from_numpy(np.stack(columns, axis=1))


def _lists(table: Table, name: str) -> Tensor:
    try:
        array = np.array(table.rows[name].to_pylist(), dtype=np.float32)
    except (ValueError, TypeError):
        raise ValueError(f"{table.where}: column {name!r} must hold lists of numbers of one length each") from None
    return torch.from_numpy(array)


def _texts(table: Table, name: str) -> list[str]:
    column = _column(table, name, "text")
    if not _is_text(column.type):
        raise ValueError(f"{table.where}: column {name!r} must hold texts, got {column.type}")
    texts = [" ".join(text.split()) for text in column.to_pylist()]
    if "" in texts:
        raise ValueError(f"{table.where}: every text must have a word, got an empty one in row {texts.index('')}")
    return texts


def _images(tables: Sequence[Table], name: str, options: TableOptions) -> Tensor:
    sources: list[Path | bytes] = []
    called = []
    for table in tables:
        for row, value in enumerate(_column(table, name, "image").to_pylist()):
            where = f"{table.where}: image in row {row}"
            encoded = value.get("bytes") if isinstance(value, dict) else value
            file = value.get("path") if isinstance(value, dict) else value
            if isinstance(encoded, bytes):
                sources.append(encoded)
            elif isinstance(file, str):
                sources.append(table.folder / file)
                where = f"{where}, {table.folder / file}"
            else:
                raise ValueError(f"{where} must be bytes or the name of a file, got {type(value).__name__}")
            called.append(where)
    return decode_pictures(sources, called, tables[0].where, options.size, options.colour)


def _is_text(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _is_list(kind: Any) -> bool:
    import pyarrow

    kinds = pyarrow.types
    if isinstance(kind, pyarrow.ExtensionType):
        kind = kind.storage_type
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _is_encoded(kind: Any) -> bool:
    """Bytes, or what the libraries of data sets write for an image: a struct of bytes and path."""
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return bool(pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind))
