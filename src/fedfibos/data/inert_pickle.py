"""Reading the pickles of the CIFAR archives without executing them.

A pickle is a program that may call anything it can name. Here it can name four things, the ones with which
numpy's arrays are written, and gets a passive stand-in of this module for each: the stand-ins record what the
pickle says of an array, and the array is built from that record afterwards, after checks. Any other name
is an error. Nothing that the file says is called.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _DtypeRecord:
    """What the pickle says of a dtype: its code, such as ``u1``."""

    def __init__(self, code: object = None, *rest: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and fields; of no matter for single bytes, the only dtype that is read."""


class _ArrayRecord:
    """What the pickle says of an array: numpy's state tuple (version, shape, dtype, column order, bytes)."""

    state: object = None

    def __init__(self, *arguments: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state


_STAND_INS: dict[tuple[str, str], type[Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _ArrayRecord,
    ("numpy._core.multiarray", "_reconstruct"): _ArrayRecord,
    ("numpy", "ndarray"): _ArrayRecord,
    ("numpy", "dtype"): _DtypeRecord,
}


class _InertUnpickler(pickle.Unpickler):
    """An unpickler to which only the stand-ins have a name."""

    def find_class(self, module: str, name: str) -> type[Any]:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not part of an array")
        return _STAND_INS[module, name]


def read_pickled_dict(content: bytes, where: str) -> dict[str, Any]:
    """The dictionary in a Python 2 or 3 pickle; uint8 arrays as arrays, byte strings as text.

    Args:
        content: The pickle.
        where: Named in errors.

    Raises:
        ValueError: Damaged, truncated, naming anything but numpy's arrays, or not a dictionary.
    """
    try:
        value = _InertUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # the opcodes of a damaged pickle can raise nearly anything
        reason = " ".join(str(error).split())
        raise ValueError(f"{where}: must be a pickle of plain values and arrays ({reason})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be a pickled dictionary, got {type(value).__name__}")
    return {_text(key): _array(item, where) if isinstance(item, _ArrayRecord) else item for key, item in value.items()}


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _array(record: _ArrayRecord, where: str) -> NDArray[np.uint8]:
    """The uint8 array of a record."""
    match record.state:
        case (int(), tuple() as shape, _DtypeRecord(code="u1"), False | 0, str() | bytes() as raw):
            buffer = raw.encode("latin1") if isinstance(raw, str) else raw
            if all(isinstance(size, int) and size >= 0 for size in shape) and int(np.prod(shape)) == len(buffer):
                return np.frombuffer(buffer, dtype=np.uint8).reshape(shape)
    raise ValueError(f"{where}: must hold row-major uint8 arrays as large as they say, got something else")
