"""CIFAR-10 and CIFAR-100: 60,000 colour images of 32x32 pixels in 10 and 100 classes.

A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Read from the published
archives (python or binary version, packed or unpacked) or from two parquet files of encoded images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.data.archive import read_members
from fedfibos.data.images import ImageData
from fedfibos.data.inert_pickle import read_pickled_dict
from fedfibos.data.split import Split, checked_images

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
META_LIMIT = 100_000
"""Most bytes of the small files that hold the class names."""


@dataclass(frozen=True)
class Cifar:
    """What distinguishes CIFAR-10 from CIFAR-100.

    Attributes:
        name: As given to ``load``; also the folder of the parquet files.
        python_name: The python version's archive, without ``.tar.gz``.
        python_folder: The folder it unpacks to.
        binary_name: The binary version's archive, without ``.tar.gz``.
        binary_folder: The folder it unpacks to.
        train_files: Training files of both archives (the binary ones end in ``.bin``).
        test_file: Their test file.
        python_meta: File with the class names, python version.
        names_key: Their key in it.
        labels_key: Key of the labels in the python version's files.
        binary_meta: File with the class names, binary version.
        label_bytes: Bytes before each image in the binary version; the last is the label.
        mean: Mean of each channel over the training images, white being 1.
        std: Standard deviation of each channel over the training images.
        num_classes: 10 or 100.
        rows: Training and test images there must be.
    """

    name: str
    python_name: str
    python_folder: str
    binary_name: str
    binary_folder: str
    train_files: tuple[str, ...]
    test_file: str
    python_meta: str
    names_key: str
    labels_key: str
    binary_meta: str
    label_bytes: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    num_classes: int
    rows: tuple[int, int] = (50_000, 10_000)

    @property
    def wanted(self) -> str:
        """Which file to put where."""
        return (
            f"put {self.python_name}.tar.gz or {self.binary_name}.tar.gz (as published, packed or unpacked) "
            f"into the data folder, or train.parquet and test.parquet into its {self.name}/"
        )

    def find(self, data_dir: Path | None) -> Path | None:
        """The archive or folder to read, or None.

        In the data folder, then in its folder of this data set's name: the python version, then the
        binary version (each unpacked, then packed), then parquet.
        """
        if data_dir is None:
            return None
        parts = (
            self.python_folder,
            f"{self.python_name}.tar.gz",
            self.binary_folder,
            f"{self.binary_name}.tar.gz",
        )
        for folder in (data_dir, data_dir / self.name):
            for part in parts:
                if (folder / part).exists():
                    return folder / part
        parquet = data_dir / self.name
        return parquet if any((parquet / f"{half}.parquet").exists() for half in ("train", "test")) else None

    def read(self, source: Path) -> Split:
        """Read what ``find`` found.

        Raises:
            FileNotFoundError: Part of it is missing.
            ValueError: A file that is damaged, truncated, of another shape or with labels out of range.
        """
        if source.name in (self.python_folder, f"{self.python_name}.tar.gz"):
            train, test, classes = self._read_python(source)
        elif source.name in (self.binary_folder, f"{self.binary_name}.tar.gz"):
            train, test, classes = self._read_binary(source)
        else:
            train, test, classes = self._read_parquet(source)
        if len(classes) != self.num_classes:
            raise ValueError(f"{source}: there must be {self.num_classes} class names, got {len(classes)}")
        return Split(
            ImageData(*train, mean=self.mean, std=self.std, crop_and_flip=True),
            ImageData(*test, mean=self.mean, std=self.std),
            classes,
            self.name,
        )

    def _read_python(self, source: Path) -> Halves:
        # Pixels, then per image a label and a file name of a few dozen bytes.
        limits = dict.fromkeys((*self.train_files, self.test_file), max(self.rows) * (PIXELS + 100) + META_LIMIT)
        members = read_members(source, {**limits, self.python_meta: META_LIMIT})
        meta = read_pickled_dict(members[self.python_meta], f"{source}: {self.python_meta}")
        names = _key(meta, self.names_key, f"{source}: {self.python_meta}")
        if not isinstance(names, list):
            raise ValueError(f"{source}: {self.python_meta} must hold a list of class names")

        def rows_of(name: str) -> Rows:
            where = f"{source}: {name}"
            content = read_pickled_dict(members[name], where)
            pixels, labels = _key(content, "data", where), _key(content, self.labels_key, where)
            if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
                got = getattr(pixels, "shape", type(pixels).__name__)
                raise ValueError(f"{where}: data must be a uint8 array of shape (n, {PIXELS}), got {got}")
            if not isinstance(labels, list) or not all(
                isinstance(label, int) and 0 <= label < self.num_classes for label in labels
            ):
                raise ValueError(f"{where}: {self.labels_key} must be a list of labels in 0..{self.num_classes - 1}")
            return pixels, np.array(labels, dtype=np.int64)

        return *self._halves(rows_of, self.train_files, self.test_file, source), tuple(map(str, names))

    def _read_binary(self, source: Path) -> Halves:
        row_bytes = self.label_bytes + PIXELS
        train_files, test_file = tuple(f"{name}.bin" for name in self.train_files), f"{self.test_file}.bin"
        limits = dict.fromkeys((*train_files, test_file), max(self.rows) * row_bytes)
        members = read_members(source, {**limits, self.binary_meta: META_LIMIT})

        def rows_of(name: str) -> Rows:
            if len(members[name]) % row_bytes:
                raise ValueError(f"{source}: {name} must be rows of {row_bytes} bytes, got {len(members[name])} bytes")
            table = np.frombuffer(members[name], dtype=np.uint8).reshape(-1, row_bytes)
            return table[:, self.label_bytes :], table[:, self.label_bytes - 1]

        names = members[self.binary_meta].decode("latin1").split()
        return *self._halves(rows_of, train_files, test_file, source), tuple(names)

    def _halves(
        self, rows_of: Callable[[str], Rows], train_files: tuple[str, ...], test_file: str, source: Path
    ) -> tuple[Half, Half]:
        """Train and test from a reader of single files."""
        halves = []
        for n, names in zip(self.rows, (train_files, (test_file,)), strict=True):
            rows = [rows_of(name) for name in names]
            pixels = np.concatenate([pixels for pixels, _ in rows]).reshape(-1, *SHAPE)
            labels = np.concatenate([labels for _, labels in rows])
            halves.append(
                checked_images(pixels, labels, (n, *SHAPE), self.num_classes, f"{source}: {', '.join(names)}")
            )
        return halves[0], halves[1]

    def _read_parquet(self, folder: Path) -> Halves:
        from fedfibos.data.parquet import read_parquet_images  # here: its readers are an extra

        halves = []
        for n, half in zip(self.rows, ("train", "test"), strict=True):
            file = folder / f"{half}.parquet"
            tensors, classes = read_parquet_images(file, n, SHAPE)
            pixels, labels = tensors["images"].numpy(), tensors["labels"].numpy()
            halves.append((checked_images(pixels, labels, (n, *SHAPE), self.num_classes, str(file)), classes))
        (train, classes), (test, test_classes) = halves
        if classes != test_classes:
            raise ValueError(f"{folder}: train.parquet and test.parquet must have the same class names")
        return train, test, classes


Rows = tuple[NDArray[np.uint8], NDArray[Any]]
Half = tuple[Tensor, Tensor]
Halves = tuple[Half, Half, tuple[str, ...]]


def _key(content: dict[str, Any], key: str, where: str) -> Any:
    if key not in content:
        raise ValueError(f"{where}: must have the key {key!r}, got {', '.join(sorted(content)) or 'none'}")
    return content[key]


CIFAR10 = Cifar(
    name="cifar10",
    python_name="cifar-10-python",
    python_folder="cifar-10-batches-py",
    binary_name="cifar-10-binary",
    binary_folder="cifar-10-batches-bin",
    train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test_file="test_batch",
    python_meta="batches.meta",
    names_key="label_names",
    labels_key="labels",
    binary_meta="batches.meta.txt",
    label_bytes=1,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    num_classes=10,
)

CIFAR100 = Cifar(
    name="cifar100",
    python_name="cifar-100-python",
    python_folder="cifar-100-python",
    binary_name="cifar-100-binary",
    binary_folder="cifar-100-binary",
    train_files=("train",),
    test_file="test",
    python_meta="meta",
    names_key="fine_label_names",
    labels_key="fine_labels",
    binary_meta="fine_label_names.txt",
    label_bytes=2,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    num_classes=100,
)
