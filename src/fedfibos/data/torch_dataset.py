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

    8-bit images of shape ``(channels, height, width)`` stay 8-bit, and a batch of them is in [0, 1]; so do pictures of
    Pillow. Other inputs are given to the model as they are, Python's and numpy's floats as float32. What the data set
    draws at random is drawn here, once.

    Args:
        dataset: Has a length, and gives (input, label) for every position: a tensor, an array or a picture, and a whole
            number.

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
    labels: list[int] = []
    for position in range(len(dataset)):
        value, label = _pair(_read(dataset, position), position)
        if inputs and (value.shape, value.dtype) != (inputs[0].shape, inputs[0].dtype):
            raise ValueError(
                f"example {position} must be {inputs[0].dtype} of shape {tuple(inputs[0].shape)}, as the first is, got "
                f"{value.dtype} of shape {tuple(value.shape)}"
            )
        inputs.append(value)
        labels.append(label)
    together = torch.stack(inputs)
    if together.dtype == torch.uint8 and together.dim() == 4:
        channels = together.shape[1]
        return ImageData(together, torch.tensor(labels), mean=(0.0,) * channels, std=(1.0,) * channels)
    return TensorData(together, torch.tensor(labels))


def _read(dataset: Any, position: int) -> Any:
    try:
        return dataset[position]
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{describe_error(error)} (example {position} cannot be read)") from error


def _pair(example: Any, position: int) -> tuple[Tensor, int]:
    if not isinstance(example, tuple | list) or len(example) != 2:
        got = f"{len(example)} values" if isinstance(example, tuple | list) else type(example).__name__
        raise ValueError(f"example {position} must be (input, label), got {got}")
    value, label = example
    if isinstance(label, Tensor | np.ndarray | np.generic) and np.prod(label.shape) == 1:
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, int):
        raise ValueError(f"the label of example {position} must be a whole number, got {str(label)[:40]!r}")
    return _tensor(value, position), label


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
