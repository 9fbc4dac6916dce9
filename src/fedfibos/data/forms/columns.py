"""What a table's columns are, by their names, and the split that comes of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor

from fedfibos.common.validation import toml_text
from fedfibos.data.forms.label_columns import (
    Table,
    column_of,
    is_list,
    is_text,
    labels_of_tables,
    listed_columns,
    targets_of_tables,
)
from fedfibos.data.forms.number_columns import numbers_of
from fedfibos.data.forms.pictures import Colour, Size, decode_pictures
from fedfibos.data.forms.rows import Rows, Share, SplitSeed, split_of
from fedfibos.data.forms.targets import Targets, Wanted
from fedfibos.data.split import Split


def _columns(value: object) -> object:
    """One column, or several different ones."""
    if isinstance(value, str):
        return value
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if not names or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"label must be a column, or several different ones, got {toml_text(value)}")
    return names


Label = Annotated[str | tuple[str, ...], BeforeValidator(_columns)]


@dataclass(frozen=True)
class TableOptions:
    """Which column is what, and which rows are for testing.

    Attributes:
        label: Column of what is to be learnt: classes, text or whole numbers; of another task numbers, or lists. Or
            several columns: those of numbers, or with 0 and 1 of the labels of ``multilabel``.
        inputs: Columns of numbers that the model reads; without it, and without ``text`` and ``image``, every column
            but the labels and the owner.
        text: Column of texts, in place of ``inputs``.
        image: Column of images, encoded or as names of files beside the table, in place of ``inputs``.
        owner: Column that says whose an example is; ``data.partition.scheme = "natural"`` makes each owner a client.
        test: Table of the test examples, a file beside the first; of a ``datasets`` folder the name of the split, by
            default ``test``.
        test_share: Where there is no test table: share of every owner's examples, or every class's where there are no
            owners, that is drawn for testing.
        split_seed: Seed of that draw.
        standardise: Whether each column of numbers gets mean 0 and deviation 1 over the training examples.
        delimiter: Between the values of a line (``csv``).
        size: Height and width that every image is scaled to; without it they must have one size.
        colour: ``grey`` or ``rgb``; without it, grey where all images are.
        crop_and_flip: Whether training images are cropped and mirrored at random.
    """

    label: Label = "label"
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
        if both := [name for name in self.labels if self.inputs is not None and name in self.inputs]:
            raise ValueError(f"inputs must not be what is to be learnt, got {both[0]!r}, which is a label too")

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of what is to be learnt."""
        return (self.label,) if isinstance(self.label, str) else self.label


LOG = logging.getLogger(__name__)

SHOWN = 8
"""Names of columns that a line gives at most."""


def split_of_tables(
    tables: Sequence[Table], options: TableOptions, wanted: Wanted, classes: tuple[str, ...] | None = None
) -> Split:
    """The split of a table, or of one of training and one of test examples.

    Args:
        tables: One or two.
        options: Which column is what.
        wanted: What the task wants as targets.
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
    tokens: Tensor | None = None
    if wanted.kind == "tokens":
        tokens, targets = _tokens(tables, options, wanted)
    else:
        targets = targets_of_tables(tables, options.labels, wanted, classes)
    owners = None if options.owner is None else labels_of_tables(tables, options.owner, "owner")
    inputs = _inputs(tables, options) if tokens is None else tokens
    where = tables[0].where
    rows = Rows(inputs, targets, len(tables[0].rows) if len(tables) > 1 else None, owners)
    return split_of(
        rows,
        where,
        options.test_share,
        options.split_seed,
        crop_and_flip=options.crop_and_flip,
        standardise=options.standardise and isinstance(inputs, Tensor) and inputs.dtype == torch.float32,
    )


def _tokens(tables: Sequence[Table], options: TableOptions, wanted: Wanted) -> tuple[Tensor, Targets]:
    """Token ids, and those to be predicted: a column of their own where the label names one, else the inputs."""
    own = all(label in tables[0].rows.column_names for label in options.labels)
    lists = [
        field.name
        for field in tables[0].rows.schema
        if is_list(field.type) and not (own and field.name in options.labels)
    ]
    names = options.inputs or tuple(lists)
    if len(names) != 1:
        got = listed_columns(names) if names else "no column of lists"
        raise ValueError(
            f"{tables[0].where}: data.options.inputs must be the one column of token ids, lists of whole numbers, as "
            f"task.name = {wanted.task!r} wants, got {got}"
        )
    inputs = targets_of_tables(tables, names, wanted, None)
    targets = targets_of_tables(tables, options.labels, wanted, None) if own else inputs
    assert isinstance(inputs.values, Tensor)
    return inputs.values, targets


def _inputs(tables: Sequence[Table], options: TableOptions) -> Tensor | tuple[str, ...]:
    if options.text is not None:
        return tuple(text for table in tables for text in _texts(table, options.text))
    names = options.inputs
    image = options.image
    if names is None and image is None:
        columns = tables[0].rows.column_names
        rest = tuple(name for name in columns if name not in (*options.labels, options.owner))
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
    inputs = torch.cat([numbers_of(table, names) for table in tables])
    if options.inputs is None:
        shown = listed_columns(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        LOG.info("%s: the inputs are all other columns: %s (data.options.inputs chooses some)", tables[0].where, shown)
    return inputs


def _texts(table: Table, name: str) -> list[str]:
    column = column_of(table, name, "text")
    if not is_text(column.type):
        raise ValueError(f"{table.where}: column {name!r} must hold texts, got {column.type}")
    texts = [" ".join(text.split()) for text in column.to_pylist()]
    if "" in texts:
        raise ValueError(f"{table.where}: every text must have a word, got an empty one in row {texts.index('')}")
    return texts


def _images(tables: Sequence[Table], name: str, options: TableOptions) -> Tensor:
    sources: list[Path | bytes] = []
    called = []
    for table in tables:
        for row, value in enumerate(column_of(table, name, "image").to_pylist()):
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


def _is_encoded(kind: Any) -> bool:
    """Bytes, or what the libraries of data sets write for an image: a struct of bytes and path."""
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return bool(pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind))
