"""Clients with different numbers of examples, whatever their targets are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedfibos.data.dealing import check_positive, largest_remainder, numpy_stream, sorted_parts


def by_quantity(
    num_examples: int, num_clients: int, alpha: float, generator: torch.Generator, *, min_size: int
) -> list[Tensor]:
    """Deal at random; how many each client has is drawn from a symmetric Dirichlet distribution.

    Args:
        num_examples: n.
        num_clients: N.
        alpha: Its concentration: small means very unequal.
        generator: Random stream.
        min_size: What every client has at least; the rest is shared out by the draw.

    Raises:
        ValueError: Fewer examples than every client is to have at least.
    """
    check_positive("num_clients", num_clients)
    rest = num_examples - num_clients * min_size
    if rest < 0:
        raise ValueError(
            f"min_size = {min_size} for each of {num_clients} clients must be at most the {num_examples} examples"
        )
    rng = numpy_stream(generator)
    shares = rng.dirichlet(np.full(num_clients, alpha))
    sizes = min_size + largest_remainder(np.round(shares * 2**40).astype(np.int64) + 1, rest, rng)
    return sorted_parts(np.split(rng.permutation(num_examples), np.cumsum(sizes)[:-1]))
