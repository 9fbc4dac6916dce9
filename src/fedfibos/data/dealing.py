"""What all ways of dealing examples to clients share."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def members(labels: Tensor) -> dict[int, NDArray[np.int64]]:
    """Class -> positions of its examples, for the classes that occur, ascending."""
    values = labels.cpu().numpy()
    return {int(label): np.flatnonzero(values == label) for label in np.unique(values)}


def sorted_parts(parts: list[NDArray[np.int64]]) -> list[Tensor]:
    """Each part sorted (neighbouring memory for the client that reads it), as int64 tensors."""
    return [torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts]


def positions_by(values: NDArray[np.int64], number: int) -> list[NDArray[np.int64]]:
    """For every value in ``range(number)`` the positions that have it, ascending; one pass, however many there are."""
    order = np.argsort(values, kind="stable")
    return np.split(order, np.cumsum(np.bincount(values, minlength=number))[:-1])


def numpy_stream(generator: torch.Generator) -> np.random.Generator:
    """A numpy stream derived from one draw of ``generator``."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))


def check_enough(labels: Tensor, num_clients: int) -> None:
    """Raise ValueError for fewer examples than clients."""
    check_positive("num_clients", num_clients)
    if len(labels) < num_clients:
        raise ValueError(
            f"there must be at least one example a client, got {len(labels)} for {num_clients} clients: "
            "lower federation.clients"
        )


def check_positive(name: str, value: int) -> None:
    """Raise ValueError for anything but an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def largest_remainder(weights: NDArray[np.int64], total: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``total`` units dealt in proportion to integer weights, exactly; equal remainders in random order."""
    quotas, remainders = np.divmod(weights * total, weights.sum())
    order = rng.permutation(len(weights))
    order = order[np.argsort(-remainders[order], kind="stable")]
    quotas[order[: total - quotas.sum()]] += 1
    return quotas
