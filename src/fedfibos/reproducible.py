"""Arithmetic that does not depend on the machine's mood: what makes a run give the same bytes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

EXACT = "ieee"


@contextmanager
def reproducible() -> Iterator[None]:
    """One torch thread, and on a GPU deterministic kernels of the precision asked for, in this process for a while.

    Sums depend on how many threads share them. cuDNN would choose kernels that add in any order, by timing them if a
    program asked for that, and TF32 (ten bits of mantissa) for the convolutions of ``precision = "float32"``.
    """
    before = _settings()
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    _set_precisions(dict.fromkeys(_precisions(), EXACT))
    try:
        yield
    finally:
        threads, deterministic, benchmark, precisions = before
        torch.set_num_threads(threads)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, benchmark
        _set_precisions(precisions)


def _settings() -> tuple[int, bool, bool, dict[str, str]]:
    cudnn = torch.backends.cudnn
    return torch.get_num_threads(), cudnn.deterministic, cudnn.benchmark, _precisions()


def _places() -> dict[str, Any]:
    """Where torch keeps the float32 precision of what cuDNN and cuBLAS compute."""
    return {
        "conv": torch.backends.cudnn.conv,  # type: ignore[attr-defined]
        "rnn": torch.backends.cudnn.rnn,
        "matmul": torch.backends.cuda.matmul,
    }


def _precisions() -> dict[str, str]:
    return {name: place.fp32_precision for name, place in _places().items()}


def _set_precisions(precisions: dict[str, str]) -> None:
    for name, place in _places().items():
        with suppress(RuntimeError):  # of a device that this build does not have
            place.fp32_precision = precisions[name]
