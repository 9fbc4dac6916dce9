"""``csv:PATH`` and ``parquet:PATH``: tables with columns of what is to be learnt."""

from __future__ import annotations

import codecs
from pathlib import Path

from fedfibos.common.extras import extra
from fedfibos.data.forms.columns import TableOptions, split_of_tables
from fedfibos.data.forms.label_columns import Table
from fedfibos.data.forms.targets import Wanted
from fedfibos.data.split import Split


def read_csv(path: Path, options: TableOptions, wanted: Wanted) -> Split:
    """Read a table in text; its first line names the columns.

    Raises:
        ValueError: Not UTF-8, lines of several lengths, or columns that are not what the options say; one line.
    """
    return split_of_tables([_csv(file, options.delimiter) for file in _files(path, options.test)], options, wanted)


def read_parquet(path: Path, options: TableOptions, wanted: Wanted) -> Split:
    """Read a table in a parquet file.

    Raises:
        ValueError: Not a parquet file, or columns that are not what the options say; one line.
    """
    return split_of_tables([_parquet(file) for file in _files(path, options.test)], options, wanted)


def _files(path: Path, test: str | None) -> list[Path]:
    files = [path] if test is None else [path, path.parent / Path(test).expanduser()]
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file}: must be a file, got {'a folder' if file.is_dir() else 'nothing there'}")
    return files


def _csv(file: Path, delimiter: str) -> Table:
    with extra("data"):
        import pyarrow
        from pyarrow import csv

    _check_utf8(file)
    try:
        table = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"{file}: must be a CSV file with the columns' names in its first line ({_line(error)})"
        ) from error
    (name, *others) = table.column_names or [""]
    if not others and (other := next((mark for mark in ";\t|" if mark in name), None)) is not None:
        raise ValueError(
            f"{file}: must have columns separated by {delimiter!r}, got the one column {name!r}: set "
            f"data.options.delimiter to {other!r}"
        )
    return Table(table, str(file), file.parent)


def _parquet(file: Path) -> Table:
    with extra("data"):
        import pyarrow
        from pyarrow import parquet

    try:
        table = parquet.ParquetFile(file).read()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file}: must be a parquet file, damaged or truncated ({_line(error)})") from error
    return Table(table, str(file), file.parent)


def _check_utf8(file: Path) -> None:
    """Raise ValueError for a file in another encoding: the reader would take its texts for bytes."""
    decoder, begins = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        with file.open("rb") as content:
            block = b"x"
            while block:
                pending = len(decoder.getstate()[0])
                block = content.read(1 << 20)
                decoder.decode(block, final=not block)
                begins += len(block)
    except UnicodeDecodeError as error:
        place = begins - pending + error.start
        raise ValueError(
            f"{file}: must be text in UTF-8, byte {place} is 0x{error.object[error.start]:02x}: save it as UTF-8"
        ) from None
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
