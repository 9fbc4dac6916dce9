"""CIFAR as parquet: rows and files that are wrong are named."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image
from pyarrow import parquet
from tiny_cifar import (
    TINY10,
    one_line,
    png,
    rows,
    write,
    write_parquet,
)

from fedfibos.data import load


def parquet_case(case: str, folder: Path) -> str:
    good = [png(p) for p in rows(TINY10, 0)[0]]
    small = io.BytesIO()
    Image.new("RGB", (28, 28)).save(small, "PNG")
    grey = io.BytesIO()
    Image.new("L", (32, 32)).save(grey, "PNG")
    columns, message = {
        "label out of range": ({"label": [0] * 19 + [10]}, r"labels must be in 0\.\.9, got 10 in row 19"),
        "negative label": ({"label": [-1] + [0] * 19}, r"labels must be in 0\.\.9, got -1 in row 0"),
        "a label missing": ({"label": [None] + [0] * 19}, r"column label must have no gaps, got 1"),
        "labels in words": ({"label": ["x"] * 20}, r"column label must hold integers, got string"),
        "an image missing": ({"image": [*good[:19], None]}, r"image in row 19 must be bytes, got NoneType"),
        "truncated image": ({"image": [*good[:3], good[3][:90], *good[4:]]}, r"row 3 must be a JPEG or PNG"),
        "no image": ({"image": [b"GIF89a", *good[1:]]}, r"row 0 must be a JPEG or PNG"),
        "another size": (
            {"image": [*good[:19], small.getvalue()]},
            r"row 19 must be RGB of 32x32, got RGB of 28x28",
        ),
        "grey": ({"image": [*good[:19], grey.getvalue()]}, r"row 19 must be RGB of 32x32, got L of 32x32"),
    }[case]
    write_parquet(folder, TINY10, **columns)
    return message


@pytest.mark.parametrize(
    "case",
    [
        "label out of range",
        "negative label",
        "a label missing",
        "labels in words",
        "an image missing",
        "truncated image",
        "no image",
        "another size",
        "grey",
    ],
)
def test_wrong_parquet_rows_are_named(tmp_path, case):
    message = parquet_case(case, tmp_path / "cifar10")
    with pytest.raises(ValueError, match=message) as caught:
        TINY10.read(tmp_path / "cifar10")
    assert one_line(caught).startswith(str(tmp_path / "cifar10" / "train.parquet"))


def test_the_public_loader_insists_on_the_official_number_of_rows(tmp_path):
    write("parquet", tmp_path, TINY10)
    with pytest.raises(ValueError, match=r"train.parquet: must have 50000 rows, got 20") as caught:
        load("cifar10", tmp_path)
    one_line(caught)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_a_truncated_parquet_file_is_refused(tmp_path, keep):
    file = write("parquet", tmp_path, TINY10) / "test.parquet"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match=r"test.parquet: must be a parquet file") as caught:
        TINY10.read(file.parent)
    one_line(caught)


def test_a_parquet_file_damaged_inside_is_refused(tmp_path):
    file = write("parquet", tmp_path, TINY10) / "train.parquet"
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"train.parquet: damaged or truncated") as caught:
        TINY10.read(file.parent)
    one_line(caught)


def test_parquet_without_its_columns_names_or_test_half(tmp_path):
    folder = write("parquet", tmp_path, TINY10)
    table = parquet.read_table(folder / "train.parquet")
    parquet.write_table(table.rename_columns(["img", "label"]), folder / "train.parquet")
    with pytest.raises(ValueError, match=r"columns image and label, got img, label without image"):
        TINY10.read(folder)
    parquet.write_table(table.replace_schema_metadata(None), folder / "train.parquet")
    with pytest.raises(ValueError, match=r"class names under the key classes"):
        TINY10.read(folder)
    parquet.write_table(table, folder / "train.parquet")
    (folder / "test.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"test.parquet is missing"):
        TINY10.read(folder)
