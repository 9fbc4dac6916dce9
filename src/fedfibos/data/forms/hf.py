"""``hf:PATH``: a folder that ``save_to_disk`` of the library ``datasets`` wrote, one data set or several splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedfibos.common.extras import extra
from fedfibos.common.validation import check_name
from fedfibos.data.forms.columns import TableOptions, split_of_tables
from fedfibos.data.forms.label_columns import Table
from fedfibos.data.forms.targets import Wanted
from fedfibos.data.split import Split

TRAIN, TEST = "train", "test"


def read_hf(path: Path, options: TableOptions, wanted: Wanted) -> Split:
    """Read the splits ``train`` and ``test`` (or the one that ``options.test`` names), or the one data set there is.

    A label column that names its classes keeps their names and their order.

    Raises:
        ValueError: Not such a folder, no such split, or columns that are not what the options say; one line.
    """
    with extra("hf"):
        import datasets

    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # the library's own, Arrow's and JSON's
        raise ValueError(
            f"{path}: must be a folder that save_to_disk of the library datasets wrote ({' '.join(str(error).split())})"
        ) from error
    if isinstance(found, datasets.DatasetDict):
        check_name(f"{path}: its splits", TRAIN, found)
        test = options.test or (TEST if TEST in found else None)
        if test is not None:
            check_name("data.options.test", test, found)
        parts = {name: found[name] for name in (TRAIN, test) if name is not None}
    elif options.test is not None:
        raise ValueError(f"{path}: data.options.test names a split, this folder holds one data set without splits")
    else:
        parts = {"": found}
    features = next(iter(parts.values())).features
    feature = features.get(options.labels[0]) if len(options.labels) == 1 else None
    if wanted.kind == "marks":
        feature = getattr(feature, "feature", None)  # lists of an example's labels
    if wanted.kind not in ("classes", "marks", "any"):
        feature = None
    classes = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None
    tables = [_table(data, f"{path}, {name}" if name else str(path), path) for name, data in parts.items()]
    return split_of_tables(tables, options, wanted, classes)


def _table(data: Any, where: str, path: Path) -> Table:
    return Table(data.with_format("arrow")[:], where, path)
