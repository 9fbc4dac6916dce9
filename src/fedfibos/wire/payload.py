"""Reading bytes that others wrote: fields and arrays of known size, and one error for all that is not as expected."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor


class WireError(ValueError):
    """A payload that is not what it must be; the message is one line."""


class Reader:
    """Takes fields off the front of a payload."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.position = memoryview(data), 0

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes.

        Raises:
            WireError: Fewer are left.
        """
        left = len(self.data) - self.position
        if size > left:
            raise WireError(f"the payload is too short: {size} more bytes wanted, got {left}")
        self.position += size
        return self.data[self.position - size : self.position]

    def unpack(self, fields: str) -> tuple[Any, ...]:
        """The next fields, as of :mod:`struct`."""
        return struct.unpack(fields, self.take(struct.calcsize(fields)))

    def array(self, dtype: str, count: int) -> np.ndarray[Any, np.dtype[Any]]:
        """A copy of the next ``count`` numbers."""
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count), dtype).copy()

    def floats(self, count: int) -> Tensor:
        """The next ``count`` values, float32."""
        return torch.from_numpy(self.array("<f4", count))

    def end(self) -> None:
        """Nothing may be left."""
        if left := len(self.data) - self.position:
            raise WireError(f"the payload is {left} bytes too long")
