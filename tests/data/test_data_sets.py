"""Loaders: tiny data sets made here in every published form, the same files damaged, and the lookup."""

from __future__ import annotations

import gzip
import io
import os
import pickle
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

from fedfibos.data import DATA_SETS, catalogue, fashion_mnist, load
from fedfibos.data.cifar import CIFAR10, CIFAR100, Cifar
from fedfibos.data.inert_pickle import read_pickled_dict
from fedfibos.data.split import Split

TINY10 = replace(CIFAR10, rows=(20, 10))
TINY100 = replace(CIFAR100, rows=(200, 100))
BOTH = pytest.mark.parametrize("cifar", [TINY10, TINY100], ids=["cifar10", "cifar100"])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def one_line(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# ---- tiny CIFARs in every form -------------------------------------------------------------------


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


FORMS = ("python folder", "python archive", "binary folder", "binary archive", "parquet")


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


def test_a_python3_pickle_of_the_same_dictionary_is_read_too():
    pixels = rows(TINY10, 1)[0]
    content = read_pickled_dict(pickle.dumps({b"data": pixels, "labels": [1]}, protocol=4), "here")
    assert np.array_equal(content["data"], pixels)
    assert content["labels"] == [1]


# ---- pickles that mean harm ----------------------------------------------------------------------


class Harm:
    """Unpickles to a call of ``os.mkdir``."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_is_refused_and_not_executed(tmp_path, protocol):
    target = tmp_path / "made-by-the-pickle"
    content = pickle.dumps({"data": Harm(target)}, protocol=protocol)
    source = write_folder(tmp_path / TINY10.python_folder, {**python_files(TINY10), "test_batch": content})
    with pytest.raises(ValueError, match=r"test_batch.*names (posix|nt)\.mkdir") as caught:
        TINY10.read(source)
    one_line(caught)
    assert not target.exists()
    pickle.loads(content)  # the same bytes do execute when they are allowed to
    assert target.is_dir()


@pytest.mark.parametrize(
    "program",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\n__builtins__\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dtype\x93.",
        b"cfedfibos.data.inert_pickle\nio.open\n.",
        b"Pid\n.",
        b"(dS'data'\ncnumpy\nndarray\n(I1\ntbs.",
    ],
)
def test_a_pickle_can_name_nothing_else(program):
    with pytest.raises(ValueError, match=r"^here: must be a pickle of plain values and arrays") as caught:
        read_pickled_dict(program, "here")
    one_line(caught)


@pytest.mark.parametrize(
    "array",
    [
        python2_array(np.zeros((2, 3), np.uint8)).replace(b"J\x02\x00\x00\x00", b"J\x03\x00\x00\x00"),
        python2_array(np.zeros((2, 3), np.uint8)).replace(b"U\x02u1", b"U\x02O8"),
        python2_array(np.zeros((2, 3), np.uint8)).replace(b"\x89T", b"\x88T"),
    ],
    ids=["more rows than bytes", "objects", "column-major"],
)
def test_an_array_that_is_not_plain_bytes_is_refused(array):
    with pytest.raises(ValueError, match=r"^here: must hold row-major uint8 arrays") as caught:
        read_pickled_dict(python2_dict({"data": array}), "here")
    one_line(caught)


# ---- wrong files ---------------------------------------------------------------------------------


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


# ---- parquet -------------------------------------------------------------------------------------


def test_decoded_images_are_kept_and_used(tmp_path, monkeypatch):
    source = write("parquet", tmp_path, TINY10)
    check_split(TINY10.read(source), TINY10)
    assert len(list((tmp_path / "cache" / "fedfibos").iterdir())) == 2
    monkeypatch.setattr("fedfibos.data.parquet._decode", None)
    check_split(TINY10.read(source), TINY10)


def test_a_changed_file_never_meets_an_old_result(tmp_path):
    source = write("parquet", tmp_path, TINY10)
    TINY10.read(source)
    stamp = (source / "train.parquet").stat()
    write_parquet(source, TINY10, image=[png(p) for p in rows(TINY10, 0)[0][::-1]])
    os.utime(source / "train.parquet", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    pixels = TINY10.read(source).train.pixels
    assert torch.equal(pixels, torch.from_numpy(rows(TINY10, 0)[0][::-1].copy()).view(-1, 3, 32, 32))


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100])
def test_a_damaged_result_is_decoded_again(tmp_path, damage):
    source = write("parquet", tmp_path, TINY10)
    TINY10.read(source)
    for kept in (tmp_path / "cache" / "fedfibos").iterdir():
        kept.write_bytes(damage)
    check_split(TINY10.read(source), TINY10)
    assert all(kept.stat().st_size > 3072 for kept in (tmp_path / "cache" / "fedfibos").iterdir())


def test_decoding_is_logged_the_one_time_that_it_is_done(tmp_path, caplog):
    source = write("parquet", tmp_path, TINY10)
    with caplog.at_level("INFO", "fedfibos"):
        TINY10.read(source)
        said = [record.getMessage() for record in caplog.records]
        TINY10.read(source)
    assert len(said) == len(caplog.records) == 4
    assert said[0].startswith("decoding train")
    assert said[1].startswith("kept for next time in ")


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    check_split(TINY10.read(write("parquet", tmp_path, TINY10)), TINY10)


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


# ---- Fashion-MNIST -------------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_fashion(folder: Path, compressed: bool = True) -> Path:
    folder.mkdir(parents=True)
    for name, n in zip(fashion_mnist.FILES, (20, 20, 10, 10), strict=True):
        rng = np.random.default_rng(n)
        array = rng.integers(0, 256, (n, 28, 28)) if "images" in name else np.arange(n) % 10
        content = idx(array.astype(np.uint8))
        file = folder / (f"{name}.gz" if compressed else name)
        file.write_bytes(gzip.compress(content) if compressed else content)
    return folder


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("name", fashion_mnist.FOLDERS)
def test_fashion_mnist_is_found_and_read(tmp_path, compressed, name):
    folder = write_fashion(tmp_path / name, compressed)
    assert fashion_mnist.find(tmp_path) == folder
    split = fashion_mnist.read(folder, (20, 10))
    wanted = np.random.default_rng(20).integers(0, 256, (20, 28, 28)).astype(np.uint8)
    assert np.array_equal(split.train.pixels[:, 0].numpy(), wanted)
    assert split.test.labels.tolist() == list(range(10))
    assert split.classes[9] == "Ankle boot"


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
    folder = write_fashion(tmp_path / "fashion-mnist", compressed)
    file = folder / (f"{name}.gz" if compressed else name)
    content = change(gzip.decompress(file.read_bytes()) if compressed else file.read_bytes())
    file.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(ValueError, match=message) as caught:
        fashion_mnist.read(folder, (20, 10))
    assert one_line(caught).startswith(str(file))


@pytest.mark.parametrize("content", [b"no gzip file", None])
def test_a_damaged_gzip_file_is_named(tmp_path, content):
    folder = write_fashion(tmp_path / "fashion-mnist")
    file = folder / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(content or file.read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"damaged or truncated gzip file") as caught:
        fashion_mnist.read(folder, (20, 10))
    assert one_line(caught).startswith(str(file))


def test_a_missing_idx_file_is_named(tmp_path):
    folder = write_fashion(tmp_path / "fashion-mnist")
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte.gz is missing"):
        fashion_mnist.read(folder, (20, 10))


# ---- digits, the lookup, the real files ----------------------------------------------------------


def test_digits_are_split_once_and_for_all():
    split = load("digits")
    assert (len(split.train), len(split.test)) == (1437, 360)
    assert split.classes == tuple("0123456789")
    batch = split.train.batch(torch.arange(1437))
    assert batch.shape == (1437, 1, 8, 8)
    assert (batch.min(), batch.max()) == (0.0, 1.0)
    assert torch.bincount(split.test.labels, minlength=10).min() >= 25
    again = load("digits")
    assert torch.equal(again.test.batch(torch.arange(360)), split.test.batch(torch.arange(360)))
    chosen = torch.cat([split.train.chosen, split.test.chosen])
    assert torch.equal(chosen.sort().values, torch.arange(1797))


def test_an_unknown_name_gets_the_nearest_valid_one():
    with pytest.raises(ValueError, match=r"must be one of 'digits', .*got 'cifar-10'; did you mean 'cifar10'"):
        load("cifar-10")


def test_what_is_missing_is_told_with_the_file_to_put_there(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"'cifar10' was not found: put cifar-10-python.tar.gz") as caught:
        load("cifar10", tmp_path)
    assert one_line(caught).endswith(f"the data folder is {tmp_path}")
    found = {line.name: line for line in catalogue(tmp_path)}
    assert list(found) == list(DATA_SETS)
    assert found["digits"].missing is None
    assert found["cifar100"].where is None
    assert "put cifar-100-python.tar.gz or cifar-100-binary.tar.gz" in found["cifar100"].missing
    assert "train-images-idx3-ubyte.gz" in found["fashion_mnist"].missing
    assert "dataset-fashion-mnist" in found["fashion_mnist"].missing


def test_the_data_folder_is_the_argument_then_the_environment(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        write("binary folder", folder, TINY10)
    monkeypatch.setenv("FEDFIBOS_DATA", str(second))

    def where(data_dir: Path | None) -> Path | None:
        return {line.name: line.where for line in catalogue(data_dir)}["cifar10"]

    assert where(None) == second / "cifar-10-batches-bin"
    assert where(first) == first / "cifar-10-batches-bin"
    assert where(tmp_path / "absent") is None
    monkeypatch.delenv("FEDFIBOS_DATA")
    assert where(None) is None
    with pytest.raises(FileNotFoundError, match=r"no data folder was given"):
        load("cifar10")
    with pytest.raises(FileNotFoundError, match=r"absent, which is not a folder"):
        load("cifar10", tmp_path / "absent")


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


def test_the_real_fashion_mnist():
    if fashion_mnist.find(Path(os.environ.get("FEDFIBOS_DATA", "/nonexistent"))) is None:
        pytest.skip("Fashion-MNIST is neither in FEDFIBOS_DATA nor installed: the real files were not tested")
    split = load("fashion_mnist")
    assert torch.bincount(split.train.labels).tolist() == [6_000] * 10
    assert torch.bincount(split.test.labels).tolist() == [1_000] * 10
    batch = split.train.batch(torch.arange(60_000))
    assert batch.mean().abs() < 0.005
    assert (batch.std() - 1).abs() < 0.005
