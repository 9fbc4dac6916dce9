"""``fedfibos data``: what is known, where it was found, what is missing."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedfibos.data import catalogue


def show_data(data_dir: Path | None, console: Console) -> None:
    """Print the catalogue."""
    table = Table()
    for column in ("data set", "found", "where, or what to do"):
        table.add_column(column, overflow="fold")
    for line in catalogue(data_dir):
        table.add_row(line.name, "no" if line.where is None else "yes", line.missing or str(line.where))
    console.print(table)
