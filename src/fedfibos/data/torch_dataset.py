"""Somebody's ``torch.utils.data.Dataset`` read once, as the library's own data."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfibos.common.user_code import UserCodeError, describe_error
from fedfibos.data.images import ImageData, TensorData

LOG = logging.getLogger(__name__)


def dataset_of(dataset: Any) -> TensorData | ImageData:
    """The examples of a map-style PyTorch data set, each read once.

    Whole numbers as targets become int64, others float32; arrays and tensors keep their shape. Which of them a task can
    have, the task says itself.

    8-bit images of shape ``(channels, height, width)`` stay 8-bit, and a batch of them is in [0, 1]; so do pictures of
    Pillow. Other inputs are given to the model as they are, Python's and numpy's floats as float32. What the data set
    draws at random is drawn here, once.

    Args:
        dataset: Has a length, and gives (input, target) for every position: a tensor, an array or a picture, and a
            number, an array or a tensor.

    Raises:
        ValueError: It is none, or an example is not like that, or of another shape or dtype than the first; one line.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> len(dataset_of(TensorDataset(torch.zeros(5, 2), torch.arange(5))))
        5
    """
    wanted = "dataset must be a map-style torch.utils.data.Dataset, with a length and (input, label) for every position"
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise ValueError(f"{wanted}, got {type(dataset).__name__}")
    if not len(dataset):
        raise ValueError("dataset must have examples, got none")
    LOG.info("reading %s examples of %s", f"{len(dataset):,}", type(dataset).__name__)
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    for position in range(len(dataset)):
        value, target = _pair(_read(dataset, position), position)
        _add(inputs, value, f"example {position}")
        _add(targets, target, f"the target of example {position}")
    together, labels = torch.stack(inputs), torch.stack(targets)
    if together.dtype == torch.uint8 and together.dim() == 4:
        channels = together.shape[1]
        return ImageData(together, labels, mean=(0.0,) * channels, std=(1.0,) * channels)
    return TensorData(together, labels)


def _read(dataset: Any, position: int) -> Any:
    try:
        return dataset[position]
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{describe_error(error)} (example {position} cannot be read)") from error


def _add(found: list[Tensor], value: Tensor, what: str) -> None:
    """Append it, once it is seen to be like the first."""
    if found and (value.shape, value.dtype) != (found[0].shape, found[0].dtype):
        raise ValueError(
            f"{what} must be {found[0].dtype} of shape {tuple(found[0].shape)}, as the first is, got "
            f"{value.dtype} of shape {tuple(value.shape)}"
        )
    found.append(value)


def _pair(example: Any, position: int) -> tuple[Tensor, Tensor]:
    if not isinstance(example, tuple | list) or len(example) != 2:
        got = f"{len(example)} values" if isinstance(example, tuple | list) else type(example).__name__
        raise ValueError(f"example {position} must be (input, target), got {got}")
    return _tensor(example[0], position), _target(example[1], position)


def _target(value: Any, position: int) -> Tensor:
    if isinstance(value, Tensor | np.ndarray | np.generic) and np.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, bool):
        raise ValueError(f"the target of example {position} must be a number, got {value}: write 0 or 1")
    try:
        array = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError):
        raise ValueError(
            f"the target of example {position} must be a number, an array or a tensor, got {str(value)[:40]!r}"
        ) from None
    if array.is_floating_point():
        return array.float()
    return array if array.dtype == torch.bool else array.long()


def _tensor(value: Any, position: int) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    is_picture = hasattr(value, "getbands")  # Pillow's, which may not be installed
    try:
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        tensor = torch.from_numpy(np.array(array))
    except (TypeError, ValueError):
        raise ValueError(
            f"the input of example {position} must be a tensor, an array of numbers or a picture, got "
            f"{type(value).__name__}"
        ) from None
    if is_picture and tensor.dtype == torch.uint8:
        return tensor[None] if tensor.dim() == 2 else tensor.permute(2, 0, 1)
    return tensor
