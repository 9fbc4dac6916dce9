"""Arithmetic that does not depend on the machine's mood: what makes a run give the same bytes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

EXACT = "ieee"

Precisions = tuple[dict[str, bool], dict[str, str]]
"""What torch says of TF32 in its older interface (where it can), and in its newer one."""


@contextmanager
def reproducible() -> Iterator[None]:
    """One torch thread, and on a GPU deterministic kernels of the precision asked for, in this process for a while.

    Sums depend on how many threads share them. cuDNN would choose kernels that add in any order, by timing them if a
    program asked for that, and TF32 (ten bits of mantissa) for the convolutions of ``precision = "float32"``.
    """
    cudnn = torch.backends.cudnn
    before = torch.get_num_threads(), cudnn.deterministic, cudnn.benchmark
    precisions = _precisions()
    torch.set_num_threads(1)
    cudnn.deterministic, cudnn.benchmark = True, False
    _set_precisions((dict.fromkeys(_older(), False), dict.fromkeys(_newer(), EXACT)))
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cudnn.deterministic, cudnn.benchmark = before[1:]
        _set_precisions(precisions)


def _older() -> dict[str, Any]:
    return {"cudnn": torch.backends.cudnn, "matmul": torch.backends.cuda.matmul}


def _newer() -> dict[str, Any]:
    """Where torch keeps the float32 precision of what cuDNN and cuBLAS compute."""
    return {
        "conv": torch.backends.cudnn.conv,  # type: ignore[attr-defined]
        "rnn": torch.backends.cudnn.rnn,
        "matmul": torch.backends.cuda.matmul,
    }


def _precisions() -> Precisions:
    older: dict[str, bool] = {}
    for name, place in _older().items():
        with suppress(RuntimeError):  # raised where a program has used the newer interface
            older[name] = place.allow_tf32
    return older, {name: place.fp32_precision for name, place in _newer().items()}


def _set_precisions(precisions: Precisions) -> None:
    """The older interface first: it sets both, and torch refuses to read it where the two do not agree."""
    older, newer = precisions
    for name, allowed in older.items():
        _older()[name].allow_tf32 = allowed
    for name, precision in newer.items():
        _newer()[name].fp32_precision = precision
