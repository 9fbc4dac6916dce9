"""Random numbers for a look at a user's code: the same each time, whichever global stream the code draws from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def fixed_draws(seed: int = 0) -> Iterator[None]:
    """Run a block on the same random numbers each time, and leave the streams of torch, Python and numpy as they were.

    Args:
        seed: Of all three, below 2³².
    """
    pythons, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 (users' code draws from it)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            yield
    finally:
        random.setstate(pythons)
        np.random.set_state(arrays)  # noqa: NPY002
