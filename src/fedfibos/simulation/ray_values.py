"""Values in Ray's object store: large tensors lie there beside the pickled rest, and are read without a copy."""

from __future__ import annotations

import io
import pickle
import warnings
from typing import Any

import numpy as np
import torch
from ray.cloudpickle import CloudPickler
from torch import Tensor

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Packed = tuple[bytes, list[Bytes]]
"""A pickled value, and the memory of its tensors."""


class _Pickler(CloudPickler):  # type: ignore[misc]
    """torch's own way of pickling a tensor copies it twice; this one leaves it where it is."""

    def reducer_override(self, value: Any) -> Any:
        """See :meth:`pickle.Pickler.reducer_override`."""
        if type(value) is Tensor and _is_plain(value):
            return _tensor_at, (value.reshape(-1).view(torch.uint8).numpy(), value.dtype, tuple(value.shape))
        return super().reducer_override(value)


def packed(value: object) -> Packed:
    """The value in pieces; what memory its tensors and arrays have is not copied."""
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return stream.getvalue(), [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in buffers]


def unpacked(pieces: Packed) -> Any:
    """Inverse of :func:`packed`. The tensors lie in the pieces' memory, which may be others' too: to be read only."""
    stream, buffers = pieces
    return pickle.loads(stream, buffers=buffers)


def tensor_on(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor in an array's memory, which is not to be written even where torch would."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _is_plain(tensor: Tensor) -> bool:
    """Whether its bytes, type and shape are all that there is to know; another order in memory gives other sums."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _tensor_at(memory: Bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return tensor_on(memory).view(dtype).view(shape)
