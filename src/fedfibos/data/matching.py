"""Every client's test examples: its owner's, or some in the class proportions of its training examples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.data.dealing import members, numpy_stream, sorted_parts


def matching_test_split(
    train_labels: Tensor, train_parts: list[Tensor], test_labels: Tensor, generator: torch.Generator
) -> list[Tensor]:
    """Test examples for every client, in the class proportions of its training examples.

    Each class's test examples are dealt in proportion to the clients' training counts of that class
    (largest remainder; equal remainders in random order). A client with very few training examples
    may get none. Test examples of a class that no client trains on are left out.

    Args:
        train_labels: int64, shape ``(n,)``.
        train_parts: Each client's positions in ``train_labels``.
        test_labels: int64, shape ``(m,)``.
        generator: Random stream.

    Returns:
        One sorted int64 tensor of positions in ``test_labels`` a client; disjoint, and complete for
        the classes that somebody trains on.
    """
    rng = numpy_stream(generator)
    held = [train_labels[part].cpu().numpy() for part in train_parts]
    parts: list[list[NDArray[np.int64]]] = [[] for _ in train_parts]
    for label, indices in members(test_labels).items():
        counts = np.array([np.count_nonzero(labels == label) for labels in held], dtype=np.int64)
        if counts.sum() == 0:
            continue
        shares = _largest_remainder(counts, len(indices), rng)
        pieces = np.split(rng.permutation(indices), np.cumsum(shares)[:-1])
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return sorted_parts([np.concatenate([np.empty(0, dtype=np.int64), *part]) for part in parts])


def own_test_split(owners: Tensor, train_parts: list[Tensor], test_owners: Tensor) -> list[Tensor]:
    """Each client's own test examples: those of the owner of its training examples.

    Args:
        owners: int64, shape ``(n,)``: whose every training example is.
        train_parts: Positions in it of each client's examples, all of one owner (a ``natural`` partition).
        test_owners: int64, shape ``(m,)``: whose every test example is.

    Returns:
        One sorted int64 tensor of positions in ``test_owners`` a client; empty where its owner has no test example.
    """
    names, of = test_owners.unique(return_inverse=True)
    by_owner = dict(zip(names.tolist(), of.argsort(stable=True).split(of.bincount().tolist()), strict=True))
    nobody = torch.empty(0, dtype=torch.int64)
    return [by_owner.get(int(owners[part[0]]), nobody) for part in train_parts]


def _largest_remainder(weights: NDArray[np.int64], total: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``total`` units dealt in proportion to integer weights, exactly; equal remainders in random order."""
    quotas, remainders = np.divmod(weights * total, weights.sum())
    order = rng.permutation(len(weights))
    order = order[np.argsort(-remainders[order], kind="stable")]
    quotas[order[: total - quotas.sum()]] += 1
    return quotas
