"""AG News: 120,000 + 7,600 news items (title and description) in four classes.

Zhang, Zhao, LeCun. Character-level Convolutional Networks for Text Classification. NeurIPS 2015. arXiv:1509.01626. Read
from the published ``train.csv`` and ``test.csv`` (class from 1, title, description; no heading), or from two parquet
files with the columns ``text`` and ``label`` (from 0). A text is the title, a space and the description, with runs of
white space as one space. A parquet file may hold a part of the training set; the test set must be complete.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import torch

from fedfibos.common.extras import extra
from fedfibos.data.split import Split
from fedfibos.data.texts import TextData

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
NUM_TEST = 7_600
FOLDERS = ("ag_news", "ag_news_csv")
WANTED = "put train.csv and test.csv (as published), or train.parquet and test.parquet, into the data folder's ag_news/"

Row = tuple[str, int]


def find(data_dir: Path | None) -> Path | None:
    """The folder with both files, given the data folder; None where there is none."""
    if data_dir is None:
        return None
    for folder in (data_dir / name for name in FOLDERS):
        if any((folder / f"train.{kind}").is_file() and (folder / f"test.{kind}").is_file() for kind in READERS):
            return folder
    return None


def read(folder: Path) -> Split:
    """Read what ``find`` found; parquet files come before CSV files.

    Raises:
        ValueError: Damaged files, labels out of range, an empty text, or an incomplete test set; names the first row.
    """
    kind = next(
        kind for kind in READERS if (folder / f"train.{kind}").is_file() and (folder / f"test.{kind}").is_file()
    )
    train, test = (_checked(folder / f"{half}.{kind}", kind) for half in ("train", "test"))
    if len(test) != NUM_TEST:
        raise ValueError(f"{folder / f'test.{kind}'}: must have {NUM_TEST} rows, got {len(test)}")
    return Split(train, test, CLASSES, "ag_news")


def _checked(file: Path, kind: str) -> TextData:
    texts, labels = [], []
    for number, (text, label) in enumerate(READERS[kind](file)):
        joined = " ".join(text.split())
        if not joined:
            raise ValueError(f"{file}: every text must have a word, got an empty one in row {number}")
        if not 0 <= label < len(CLASSES):
            first = 1 if kind == "csv" else 0
            raise ValueError(
                f"{file}: labels must be in {first}..{first + len(CLASSES) - 1}, got {label + first} in row {number}"
            )
        texts.append(joined)
        labels.append(label)
    if not texts:
        raise ValueError(f"{file}: must have at least one row, got none")
    return TextData(tuple(texts), torch.tensor(labels))


def _from_parquet(file: Path) -> Iterator[Row]:
    with extra("data"):
        import pyarrow
        from pyarrow import parquet

    try:
        table = parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"{file}: must be a parquet file, damaged or truncated ({str(error).splitlines()[0]})"
        ) from error
    if missing := [name for name in ("text", "label") if name not in table.column_names]:
        raise ValueError(
            f"{file}: must have the columns text and label, got {', '.join(table.column_names)} without {missing[0]}"
        )
    for name, wanted in (("text", pyarrow.types.is_string), ("label", pyarrow.types.is_integer)):
        if not wanted(table.schema.field(name).type):
            raise ValueError(f"{file}: column {name} must not be of type {table.schema.field(name).type}")
        if table[name].null_count:
            raise ValueError(f"{file}: column {name} must have no gaps, got {table[name].null_count}")
    yield from zip(table["text"].to_pylist(), table["label"].to_pylist(), strict=True)


def _from_csv(file: Path) -> Iterator[Row]:
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.reader(lines, strict=True)):
                if len(row) != 3 or not row[0].isdecimal():
                    raise ValueError(f"{file}: a row must be class, title, description, got {row[:3]} in row {number}")
                yield f"{row[1]} {row[2]}", int(row[0]) - 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: must be a CSV file in UTF-8 ({error})") from error


READERS = {"parquet": _from_parquet, "csv": _from_csv}
"""How a file of that kind is read: text and label (from 0) of every row."""
