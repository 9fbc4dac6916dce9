"""CIFAR of a few images, in every form that it is published in."""

from __future__ import annotations

import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from fedfibos.data.cifar import CIFAR10, Cifar
from fedfibos.data.split import Split

TINY10 = replace(CIFAR10, rows=(20, 10))


def one_line(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def rows(cifar: Cifar, half: int) -> tuple[np.ndarray, np.ndarray]:
    """Random pixels, uint8 of shape (n, 3072), and labels that name every class."""
    n = cifar.rows[half]
    pixels = np.random.default_rng(half).integers(0, 256, (n, 3072), dtype=np.uint8)
    return pixels, np.arange(n) % cifar.num_classes


def names(cifar: Cifar) -> list[str]:
    return [f"class{k}" for k in range(cifar.num_classes)]


def files_of(cifar: Cifar) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(file name, pixels, labels) of every file of the archives."""
    pixels, labels = rows(cifar, 0)
    m = len(cifar.train_files)
    pieces = zip(cifar.train_files, np.split(pixels, m), np.split(labels, m), strict=True)
    return [*pieces, (cifar.test_file, *rows(cifar, 1))]


def short(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text


def python2_array(pixels: np.ndarray) -> bytes:
    """A uint8 matrix as Python 2's numpy pickled it, protocol 2, opcode by opcode."""
    n, m = pixels.shape
    raw = pixels.tobytes()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n"
        + b"cnumpy\nndarray\n"
        + b"K\x00\x85"
        + short(b"b")
        + b"\x87R"
        + b"(K\x01"
        + (b"J" + struct.pack("<i", n) + b"J" + struct.pack("<i", m) + b"\x86")
        + (b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R")
        + (b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")
        + b"\x89"
        + (b"T" + struct.pack("<i", len(raw)) + raw)
        + b"tb"
    )


def python2_list(items: list[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"


def python2_dict(items: dict[str, bytes]) -> bytes:
    return b"\x80\x02}(" + b"".join(short(k.encode()) + v for k, v in items.items()) + b"u."


def python_files(cifar: Cifar) -> dict[str, bytes]:
    files = {
        name: python2_dict(
            {
                "batch_label": short(b"a batch"),
                cifar.labels_key: python2_list([b"K" + bytes([k]) for k in labels]),
                "data": python2_array(pixels),
            }
        )
        for name, pixels, labels in files_of(cifar)
    }
    return {
        **files,
        cifar.python_meta: python2_dict({cifar.names_key: python2_list([short(n.encode()) for n in names(cifar)])}),
    }


def binary_files(cifar: Cifar) -> dict[str, bytes]:
    coarse = cifar.label_bytes - 1
    files = {
        f"{name}.bin": b"".join(bytes([77] * coarse + [k]) + p.tobytes() for p, k in zip(pixels, labels, strict=True))
        for name, pixels, labels in files_of(cifar)
    }
    return {**files, cifar.binary_meta: "\n".join([*names(cifar), ""]).encode()}


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_tar(file: Path, top: str, files: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in {**files, "readme.html": b"<p>"}.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels.reshape(3, 32, 32).transpose(1, 2, 0)).save(out, "PNG")
    return out.getvalue()


def write_parquet(folder: Path, cifar: Cifar, **columns: list) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for half, name in enumerate(("train", "test")):
        pixels, labels = rows(cifar, half)
        table = {"image": [png(p) for p in pixels], "label": pa.array(labels, pa.int8())}
        table = pa.table({**table, **columns} if half == 0 else table)
        meta = {"classes": ",".join(names(cifar))}
        parquet.write_table(table.replace_schema_metadata(meta), folder / f"{name}.parquet")
    return folder


def write(form: str, folder: Path, cifar: Cifar) -> Path:
    if form == "python folder":
        return write_folder(folder / cifar.python_folder, python_files(cifar))
    if form == "python archive":
        return write_tar(folder / f"{cifar.python_name}.tar.gz", cifar.python_folder, python_files(cifar))
    if form == "binary folder":
        return write_folder(folder / cifar.binary_folder, binary_files(cifar))
    if form == "binary archive":
        return write_tar(folder / f"{cifar.binary_name}.tar.gz", cifar.binary_folder, binary_files(cifar))
    return write_parquet(folder / cifar.name, cifar)


def check_split(split: Split, cifar: Cifar) -> None:
    assert split.classes == tuple(names(cifar))
    assert split.name == cifar.name
    for half, data in enumerate((split.train, split.test)):
        pixels, labels = rows(cifar, half)
        assert data.labels.tolist() == labels.tolist()
        batch = data.batch(torch.arange(len(data)))
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (cifar.mean, cifar.std))
        back = ((batch * std + mean) * 255).round().to(torch.uint8)
        assert torch.equal(back, torch.from_numpy(pixels).view(-1, 3, 32, 32))
