"""``fedfibos data``: what is known, where it was found, what is missing."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedfibos.data import DATA_SETS, Found, catalogue, load


def show_data(data_dir: Path | None, console: Console) -> None:
    """Print the catalogue."""
    table = Table()
    for column in ("data set", "found", "where, or what to do"):
        table.add_column(column, overflow="fold")
    for line in catalogue(data_dir):
        table.add_row(line.name, "no" if line.where is None else "yes", line.missing or str(line.where))
    console.print(table)


def count_examples(data_dir: Path | None) -> dict[str, dict[str, dict[str, int]]]:
    """Examples of every data set that was found, beside those that were published: name -> split -> counts."""
    return {line.name: _counts(line, data_dir) for line in catalogue(data_dir) if line.where is not None}


def _counts(line: Found, data_dir: Path | None) -> dict[str, dict[str, int]]:
    split, official = load(line.name, data_dir), DATA_SETS[line.name].official
    return {
        name: {"examples": len(data), "published": published}
        for (name, data), published in zip((("train", split.train), ("test", split.test)), official, strict=True)
    }
