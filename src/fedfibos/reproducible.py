"""Arithmetic that does not depend on the machine's mood: what makes a run give the same bytes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def reproducible() -> Iterator[None]:
    """One torch thread, and of cuDNN the deterministic kernels of the precision asked for, in this process for a while.

    Sums depend on how many threads share them. cuDNN would choose kernels that add in any order, and TF32 (ten bits of
    mantissa) for the convolutions of ``precision = "float32"``.
    """
    cudnn = torch.backends.cudnn
    before = torch.get_num_threads(), cudnn.deterministic, cudnn.allow_tf32
    _set(1, deterministic=True, allow_tf32=False)
    try:
        yield
    finally:
        threads, deterministic, allow_tf32 = before
        _set(threads, deterministic=deterministic, allow_tf32=allow_tf32)


def _set(threads: int, *, deterministic: bool, allow_tf32: bool) -> None:
    torch.set_num_threads(threads)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.allow_tf32 = allow_tf32
