"""Random streams for users' code: the same numbers each time, whichever global stream it draws from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator

_MADE: list[np.random.MT19937] = []
"""Numpy's generators of blocks, by how deep these lie in each other. Making one takes longer than a small step."""

_INSIDE: list[np.random.MT19937] = []
"""Those of the blocks that are being run."""


@contextmanager
def reseeded(seed: int) -> Iterator[None]:
    """Run a block with Python's and numpy's global streams from this seed on, and leave them as they were.

    Numpy's state takes long to write. So the block draws from a generator of its own, and the one before is put back.
    Its state is written only where numpy's ``randn`` keeps the second number of a pair, which would be lost.
    """
    depth = len(_INSIDE)
    if depth == len(_MADE):
        _MADE.append(np.random.MT19937())
    pythons, theirs = random.getstate(), get_bit_generator()
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    try:
        _INSIDE.append(_MADE[depth])
        set_bit_generator(_MADE[depth])
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        yield
    finally:
        del _INSIDE[depth:]
        random.setstate(pythons)
        set_bit_generator(theirs)
        if state["has_gauss"]:
            np.random.set_state(state)  # noqa: NPY002


@contextmanager
def fixed_draws(seed: int = 0) -> Iterator[None]:
    """Run a block on the same random numbers each time, and leave the streams of torch, Python and numpy as they were.

    Args:
        seed: Of all three.
    """
    with torch.random.fork_rng(devices=[]), reseeded(seed):
        torch.default_generator.manual_seed(seed)
        yield
