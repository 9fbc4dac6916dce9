"""The files of MNIST and Fashion-MNIST: read, or named with what is wrong."""

from __future__ import annotations

import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_cifar import (
    one_line,
)

from fedfibos.data import load
from fedfibos.data.mnist import FASHION_MNIST, FILES, MNIST


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


SMALL = replace(FASHION_MNIST, rows=(20, 10))


def write_files(folder: Path, compressed: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name, n in zip(FILES, (20, 20, 10, 10), strict=True):
        rng = np.random.default_rng(n)
        array = rng.integers(0, 256, (n, 28, 28)) if "images" in name else np.arange(n) % 10
        content = idx(array.astype(np.uint8))
        file = folder / (f"{name}.gz" if compressed else name)
        file.write_bytes(gzip.compress(content) if compressed else content)
    return folder


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    ("of", "name", "last"),
    [
        *((FASHION_MNIST, name, "Ankle boot") for name in ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw")),
        *((MNIST, name, "9") for name in ("mnist", "MNIST/raw")),
    ],
)
def test_each_is_found_in_its_own_folder_and_read(tmp_path, compressed, of, name, last):
    folder = write_files(tmp_path / name, compressed)
    other = MNIST if of is FASHION_MNIST else replace(FASHION_MNIST, installed=None)
    assert (of.find(tmp_path), other.find(tmp_path)) == (folder, None)
    split = replace(of, rows=(20, 10)).read(folder)
    assert split.name == of.name
    wanted = np.random.default_rng(20).integers(0, 256, (20, 28, 28)).astype(np.uint8)
    assert np.array_equal(split.train.pixels[:, 0].numpy(), wanted)
    assert split.test.labels.tolist() == list(range(10))
    assert split.classes[9] == last


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-images-idx3-ubyte", lambda c: c[:-1], r"must have 15696 bytes uncompressed, got 15695 bytes"),
        ("train-images-idx3-ubyte", lambda c: c + b"x", r"must have 15696 bytes .*got more than 15696"),
        ("train-images-idx3-ubyte", lambda c: c[:9], r"must have 15696 bytes uncompressed, got 9 bytes"),
        ("train-images-idx3-ubyte", lambda c: b"", r"IDX file .*got an empty file"),
        ("train-images-idx3-ubyte", lambda c: idx(np.zeros((20, 32, 32), np.uint8)), r"got \(20, 32, 32\)"),
        ("t10k-images-idx3-ubyte", lambda c: idx(np.zeros((20, 28, 28), np.uint8)), r"\(10, 28, 28\), got \(20,"),
        ("t10k-images-idx3-ubyte", lambda c: b"\x00\x00\x0d" + c[3:], r"\(magic number 00 00 08 03\), got 00 00 0d 03"),
        ("t10k-labels-idx1-ubyte", lambda c: c[:-1] + b"\x0a", r"labels must be in 0\.\.9, got 10 in row 9"),
    ],
)
@pytest.mark.parametrize("compressed", [True, False])
def test_wrong_idx_files_are_named(tmp_path, name, change, message, compressed):
    folder = write_files(tmp_path / "fashion-mnist", compressed)
    file = folder / (f"{name}.gz" if compressed else name)
    content = change(gzip.decompress(file.read_bytes()) if compressed else file.read_bytes())
    file.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(ValueError, match=message) as caught:
        SMALL.read(folder)
    assert one_line(caught).startswith(str(file))


@pytest.mark.parametrize("content", [b"no gzip file", None])
def test_a_damaged_gzip_file_is_named(tmp_path, content):
    folder = write_files(tmp_path / "fashion-mnist")
    file = folder / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(content or file.read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"damaged or truncated gzip file") as caught:
        SMALL.read(folder)
    assert one_line(caught).startswith(str(file))


def test_a_missing_idx_file_is_named(tmp_path):
    folder = write_files(tmp_path / "fashion-mnist")
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte.gz is missing"):
        SMALL.read(folder)


@pytest.mark.parametrize("of", [MNIST, FASHION_MNIST], ids=["mnist", "fashion_mnist"])
def test_the_real_files(of):
    if of.find(Path(os.environ.get("FEDFIBOS_DATA", "/nonexistent"))) is None:
        pytest.skip(f"{of.name} is neither in FEDFIBOS_DATA nor installed: the real files were not tested")
    split = load(of.name)
    smallest = {"mnist": (5_421, 892), "fashion_mnist": (6_000, 1_000)}[of.name]
    assert tuple(int(torch.bincount(half.labels).min()) for half in (split.train, split.test)) == smallest
    batch = split.train.batch(torch.arange(60_000))
    assert batch.mean().abs() < 0.005
    assert (batch.std() - 1).abs() < 0.005
