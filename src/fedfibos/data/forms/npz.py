"""``npz:PATH``: arrays of numpy in MedMNIST's layout.

J. Yang et al., MedMNIST v2, Scientific Data 10:41, 2023: ``train_images``, ``train_labels``, and the same of ``val``
and ``test``. Images are uint8: ``(n, height, width)``, ``(n, height, width, 3)``, or volumes ``(n, depth, height,
width)``. Labels are ``(n, 1)``; ``(n, labels)`` of many labels at once; of a task of another kind what it wants.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.common.validation import did_you_mean
from fedfibos.data.forms.rows import Rows, split_of
from fedfibos.data.forms.targets import Targets, Wanted, targets_of
from fedfibos.data.split import Split


@dataclass(frozen=True)
class NpzOptions:
    """Which arrays are the test set.

    Attributes:
        test: ``test``; or ``val``, for choosing hyperparameters without looking at the test set. The other one is left
            out.
        crop_and_flip: Whether training images are cropped and mirrored at random.
    """

    test: Literal["test", "val"] = "test"
    crop_and_flip: bool = False


def read_npz(path: Path, options: NpzOptions, wanted: Wanted) -> Split:
    """Read the arrays of training and test examples; the others are not read.

    Raises:
        ValueError: Not a file of numpy's, a missing array, or arrays of another dtype or shape; one line.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path}: must be an .npz file of numpy, an archive of arrays, got another file, or a part of one"
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = [f"{half}_{what}" for half in ("train", options.test) for what in ("images", "labels")]
            if missing := [name for name in names if name not in arrays.files]:
                raise ValueError(
                    f"{path}: must have the arrays {', '.join(names)}, got no {missing[0]} among "
                    f"{', '.join(map(repr, arrays.files))}{did_you_mean(missing[0], arrays.files)}"
                )
            train, train_labels, test, test_labels = (_array(arrays, name, path) for name in names)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: must be an .npz file of numpy, damaged ({_line(error)})") from error
    if train.shape[1:] != test.shape[1:]:
        raise ValueError(
            f"{path}: training and test images must have one shape, got {train.shape[1:]} and {test.shape[1:]}"
        )
    if train.dtype != test.dtype:
        raise ValueError(f"{path}: training and test images must have one dtype, got {train.dtype} and {test.dtype}")
    if wanted.kind == "tokens":
        inputs = targets = _targets([train, test], [names[0], names[2]], wanted, path)
        assert isinstance(inputs.values, Tensor)
        rows = Rows(inputs.values, targets, num_train=len(train))
    else:
        for labels, images, name in ((train_labels, train, names[1]), (test_labels, test, names[3])):
            if len(labels) != len(images):
                raise ValueError(f"{path}: {name} must have {len(images)} rows, one an image, got {len(labels)}")
        targets = _targets([train_labels, test_labels], [names[1], names[3]], wanted, path)
        rows = Rows(_inputs(np.concatenate([train, test]), path), targets, num_train=len(train))
    return split_of(rows, str(path), 0.0, 0, crop_and_flip=options.crop_and_flip)


def _array(arrays: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = arrays[name]
    except ValueError as error:
        raise ValueError(f"{path}: {name} cannot be read ({_line(error)})") from error
    if not len(array.shape) or not len(array):
        raise ValueError(f"{path}: {name} must have examples, got none")
    return array


def _targets(arrays: list[NDArray[Any]], names: list[str], wanted: Wanted, path: Path) -> Targets:
    """Those of training and of test examples."""
    train, test = arrays
    for array, name in zip(arrays, names, strict=True):
        if wanted.kind == "classes" and (array.dtype.kind not in "iuU" or array.size != len(array)):
            raise wanted.refusal(f"{path}: {name}", f"{array.dtype} of shape {array.shape}")
    if train.shape[1:] != test.shape[1:]:
        raise ValueError(f"{path}: {names[0]} and {names[1]} must have one shape, got {train.shape} and {test.shape}")
    return targets_of(np.concatenate([train, test]), wanted, f"{path}: {names[0]}")


def _inputs(images: NDArray[Any], path: Path) -> Tensor:
    """8-bit images, channels first; volumes in [0, 1] with one channel; other numbers as float32."""
    if images.dtype == np.uint8 and images.ndim == 3:
        return torch.from_numpy(images[:, None])
    if images.dtype == np.uint8 and images.ndim == 4 and images.shape[3] in (1, 3):
        return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    if images.dtype == np.uint8 and images.ndim == 4:
        return torch.from_numpy(images[:, None]).float().div_(255)
    if images.dtype.kind in "fiu" and images.ndim >= 2:
        return torch.from_numpy(images.astype(np.float32))
    raise ValueError(
        f"{path}: images must be uint8 of shape (n, height, width[, 3]) or numbers of shape (n, ...), got "
        f"{images.dtype} of shape {images.shape}"
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
