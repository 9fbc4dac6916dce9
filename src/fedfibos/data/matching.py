"""Every client's test examples: its owner's, or some in the class proportions of its training examples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.data.dealing import largest_remainder, members, numpy_stream, sorted_parts


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
        shares = largest_remainder(counts, len(indices), rng)
        pieces = np.split(rng.permutation(indices), np.cumsum(shares)[:-1])
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return sorted_parts([np.concatenate([np.empty(0, dtype=np.int64), *part]) for part in parts])


def proportional_test_split(train_parts: list[Tensor], num_test: int, generator: torch.Generator) -> list[Tensor]:
    """Test examples for every client in proportion to its training examples, at random: of targets that are no classes.

    Args:
        train_parts: Each client's positions among the training examples.
        num_test: Test examples in all.
        generator: Random stream.

    Returns:
        One sorted int64 tensor of positions in the test set a client; disjoint, and complete.
    """
    rng = numpy_stream(generator)
    sizes = largest_remainder(np.array([len(part) for part in train_parts], dtype=np.int64), num_test, rng)
    return sorted_parts(np.split(rng.permutation(num_test), np.cumsum(sizes)[:-1]))


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
