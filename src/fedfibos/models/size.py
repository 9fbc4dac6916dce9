"""How large a model will be, before any of its memory is taken."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn


def check_size(build: Callable[[], nn.Module]) -> None:
    """Refuse a module whose parameters alone do not fit this machine's memory.

    Args:
        build: Makes the module; called with ``meta`` as the default device, where tensors have shapes and no values.

    Raises:
        ValueError: How many parameters, how much memory; or sizes that no tensor can have.
    """
    try:
        with torch.device("meta"):
            module = build()
    except (RuntimeError, OverflowError, TypeError) as error:  # torch's words for a size beyond 2^63
        raise ValueError(f"sizes of the model's layers are too large: {str(error).splitlines()[0]}") from error
    size = sum(parameter.numel() for parameter in module.parameters())
    needed, there = 4 * size, _physical_memory()
    if there is not None and needed > there:
        raise ValueError(
            f"the model would have {size:,} parameters, {needed / 1e9:,.0f} GB; this machine has {there / 1e9:,.0f} GB"
        )


def _physical_memory() -> int | None:
    """Bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
