"""CIFAR in all its published forms gives the same images; wrong files are named."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace

import pytest
import torch
from tiny_cifar import (
    TINY10,
    binary_files,
    check_split,
    one_line,
    python2_array,
    python2_dict,
    python2_list,
    python_files,
    rows,
    short,
    write,
    write_folder,
    write_tar,
)

from fedfibos.data import load
from fedfibos.data.cifar import CIFAR100

TINY100 = replace(CIFAR100, rows=(200, 100))

BOTH = pytest.mark.parametrize("cifar", [TINY10, TINY100], ids=["cifar10", "cifar100"])

FORMS = ("python folder", "python archive", "binary folder", "binary archive", "parquet")


@BOTH
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_images(tmp_path, cifar, form):
    source = write(form, tmp_path, cifar)
    assert cifar.find(tmp_path) == source
    check_split(cifar.read(source), cifar)


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_of_the_data_sets_name_may_hold_it_too(tmp_path, form):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    source = write(form, tmp_path if form == "parquet" else folder, TINY10)
    assert TINY10.find(tmp_path) == source


def test_only_training_batches_are_augmented(tmp_path):
    split = TINY10.read(write("binary folder", tmp_path, TINY10))
    indices = torch.arange(10)
    augmented = split.train.batch(indices, torch.Generator().manual_seed(0))
    assert not torch.equal(augmented, split.train.batch(indices))
    assert torch.equal(split.test.batch(indices, torch.Generator().manual_seed(0)), split.test.batch(indices))


def damaged(case: str) -> tuple[str, dict[str, bytes], str]:
    """(form, files to replace, message)."""
    python, binary = python_files(TINY10), binary_files(TINY10)
    pixels, labels = rows(TINY10, 1)

    def batch(data: bytes, labels: list[bytes], key: str = "labels") -> dict[str, bytes]:
        return {"test_batch": python2_dict({key: python2_list(labels), "data": data})}

    few, good = python2_array(pixels[:9]), [b"K" + bytes([k]) for k in labels]
    return {
        "truncated pickle": ("python", {"test_batch": python["test_batch"][:-50]}, r"test_batch: must be a pickle"),
        "empty pickle": ("python", {"test_batch": b""}, r"test_batch: must be a pickle"),
        "no dictionary": ("python", {"test_batch": pickle.dumps([1])}, r"test_batch: .*dictionary, got list"),
        "too few images": ("python", batch(few, good), r"must have shape \(10, 3, 32, 32\), got \(9, 3, 32, 32\)"),
        "too few labels": (
            "python",
            batch(python2_array(pixels), good[:8]),
            r"test_batch: there must be 10 labels, got shape \(8,\)",
        ),
        "label out of range": (
            "python",
            batch(python2_array(pixels), [*good[:9], b"K\x0a"]),
            r"test_batch: labels must be a list of labels in 0\.\.9",
        ),
        "other key": (
            "python",
            batch(python2_array(pixels), good, "fine_labels"),
            r"test_batch: must have the key 'labels', got data, fine_labels",
        ),
        "narrow images": (
            "python",
            batch(python2_array(pixels[:, :1024]), good),
            r"test_batch: data must be .*\(n, 3072\), got \(10, 1024\)",
        ),
        "nine names": (
            "python",
            {"batches.meta": python2_dict({"label_names": python2_list([short(b"x")] * 9)})},
            r"10 class names, got 9",
        ),
        "huge member": ("python", {"batches.meta": bytes(100_001)}, r"batches.meta must have at most 100000 bytes"),
        "truncated rows": (
            "binary",
            {"test_batch.bin": binary["test_batch.bin"][:-1]},
            r"test_batch.bin must be rows of 3073 bytes, got 30729 bytes",
        ),
        "missing rows": (
            "binary",
            {"data_batch_2.bin": binary["data_batch_2.bin"][:3073]},
            r"data_batch_2.bin.* must have shape \(20, 3, 32, 32\), got \(17, 3, 32, 32\)",
        ),
        "binary label out of range": (
            "binary",
            {"test_batch.bin": b"\x0a" + binary["test_batch.bin"][1:]},
            r"test_batch.bin: labels must be in 0\.\.9, got 10 in row 0",
        ),
    }[case]


@pytest.mark.parametrize(
    "case",
    [
        "truncated pickle",
        "empty pickle",
        "no dictionary",
        "too few images",
        "too few labels",
        "label out of range",
        "other key",
        "narrow images",
        "nine names",
        "huge member",
        "truncated rows",
        "missing rows",
        "binary label out of range",
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_wrong_files_are_named_with_what_was_got_and_wanted(tmp_path, case, packed):
    form, changes, message = damaged(case)
    files = {**(python_files(TINY10) if form == "python" else binary_files(TINY10)), **changes}
    folder = TINY10.python_folder if form == "python" else TINY10.binary_folder
    archive = f"{TINY10.python_name if form == 'python' else TINY10.binary_name}.tar.gz"
    source = write_tar(tmp_path / archive, folder, files) if packed else write_folder(tmp_path / folder, files)
    with pytest.raises(ValueError, match=message) as caught:
        TINY10.read(source)
    assert one_line(caught).startswith(str(source))


@pytest.mark.parametrize("form", ["python folder", "binary folder"])
def test_a_missing_file_is_named(tmp_path, form):
    source = write(form, tmp_path, TINY10)
    lost = next(source.glob("data_batch_3*"))
    lost.unlink()
    with pytest.raises(FileNotFoundError, match=rf"{lost.name} is missing") as caught:
        TINY10.read(source)
    one_line(caught)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.9999])
def test_a_truncated_archive_is_refused(tmp_path, keep):
    source = write("binary archive", tmp_path, TINY10)
    content = source.read_bytes()
    source.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match=r"must be a \.tar\.gz archive") as caught:
        TINY10.read(source)
    assert one_line(caught).startswith(str(source))


def test_a_changed_byte_in_an_archive_is_noticed(tmp_path):
    """Random pixels are stored nearly as they are, so a changed byte still unpacks: the checksum tells."""
    source = write("binary archive", tmp_path, TINY10)
    content = bytearray(source.read_bytes())
    content[len(content) // 2] ^= 1
    source.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a \.tar\.gz archive"):
        TINY10.read(source)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    source = tmp_path / "cifar-10-python.tar.gz"
    source.write_bytes(b"<html>404</html>")
    with pytest.raises(ValueError, match=r"must be a \.tar\.gz archive") as caught:
        TINY10.read(source)
    one_line(caught)


@pytest.mark.parametrize(("name", "num_classes"), [("cifar10", 10), ("cifar100", 100)])
def test_the_real_cifar(name, num_classes, monkeypatch):
    if not os.environ.get("FEDFIBOS_DATA"):
        pytest.skip("FEDFIBOS_DATA is not set: the real CIFAR files were not tested")
    monkeypatch.undo()  # the user's own cache: decoding takes seconds
    split = load(name)
    assert torch.bincount(split.train.labels).tolist() == [50_000 // num_classes] * num_classes
    assert torch.bincount(split.test.labels).tolist() == [10_000 // num_classes] * num_classes
    batch = split.train.batch(torch.arange(0, 50_000, 5))
    assert batch.mean((0, 2, 3)).abs().max() < 0.02
    assert (batch.std((0, 2, 3)) - 1).abs().max() < 0.02
    assert split.classes[:2] == {10: ("airplane", "automobile"), 100: ("apple", "aquarium_fish")}[num_classes]
