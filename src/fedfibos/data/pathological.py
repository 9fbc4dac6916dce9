"""A few classes a client, the same number for each."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.data.dealing import check_enough, check_positive, members, numpy_stream, sorted_parts


def pathological(labels: Tensor, num_clients: int, classes_per_client: int, generator: torch.Generator) -> list[Tensor]:
    """Exactly ``classes_per_client`` classes for every client; each class is split evenly over its owners.

    Random permutations of the classes are strung together and cut into consecutive groups, one a
    client (the construction of FIARSE's experiments). Where a group straddles two permutations, the
    classes it already has are moved behind its end in the second, so no group names a class twice and
    every class still has the same number of owners up to one. Unlike sharding by sorted labels
    (HeteroFL's), it loses no example and gives no client fewer classes.

    Raises:
        ValueError: Fewer examples than clients; more classes a client than classes; fewer places
            than classes, so that a class would have no owner; or a class with fewer examples than owners.
    """
    check_enough(labels, num_clients)
    check_positive("classes_per_client", classes_per_client)
    by_class = members(labels)
    if classes_per_client > len(by_class):
        raise ValueError(
            f"data.partition.classes_per_client must be at most the number of classes, {len(by_class)}, "
            f"got {classes_per_client}"
        )
    places = num_clients * classes_per_client
    if places < len(by_class):
        raise ValueError(
            f"federation.clients times classes_per_client must be at least the number of classes, {len(by_class)}, "
            f"or classes would be left out, got {num_clients} times {classes_per_client}"
        )
    rng = numpy_stream(generator)
    groups = _class_groups(len(by_class), num_clients, classes_per_client, rng)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(num_clients)]
    for k, (label, indices) in enumerate(by_class.items()):
        owners = [client for client, group in enumerate(groups) if k in group]
        if len(indices) < len(owners):
            raise ValueError(
                f"class {label} has {len(indices)} examples for its {len(owners)} clients; at least one "
                "each is wanted: use fewer clients or fewer classes_per_client"
            )
        shares = np.array_split(rng.permutation(indices), len(owners))
        for client, share in zip(owners, shares, strict=True):
            parts[client].append(share)
    return sorted_parts([np.concatenate(part) for part in parts])


def _class_groups(
    num_classes: int, num_clients: int, classes_per_client: int, rng: np.random.Generator
) -> list[list[int]]:
    """Groups of different class numbers, one a client; each class is in as many groups, up to one."""
    sequence: list[int] = []
    places = num_clients * classes_per_client
    while len(sequence) < places:
        begun = len(sequence) % classes_per_client
        already = set(sequence[len(sequence) - begun :])
        fresh = [int(k) for k in rng.permutation(num_classes)]
        allowed = [k for k in fresh if k not in already]
        first = allowed[: classes_per_client - begun] if begun else []
        sequence += first + [k for k in fresh if k not in first]
    return [sequence[i : i + classes_per_client] for i in range(0, places, classes_per_client)]
