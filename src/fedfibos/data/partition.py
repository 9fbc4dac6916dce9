"""How a data set is dealt to clients: pure functions of the labels and a random stream.

Every partition is a list of int64 index tensors, one a client, sorted; they are disjoint and together
hold every example once.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fedfibos.common.user_code import is_own
from fedfibos.data.dealing import check_enough, check_positive, numpy_stream, sorted_parts
from fedfibos.data.dirichlet import check_alpha, dirichlet_by_class, dirichlet_by_client
from fedfibos.data.own_partition import own_partition
from fedfibos.data.pathological import pathological
from fedfibos.data.quantity import by_quantity

Scheme = Literal["iid", "quantity", "pathological", "dirichlet", "dirichlet-by-class", "natural"]
BY_CLASS = ("pathological", "dirichlet", "dirichlet-by-class")
"""Schemes that need the class of every example."""


@dataclass(frozen=True)
class Partition:
    """Which partition, and its settings. Fields that the scheme does not use are ignored.

    Attributes:
        scheme: ``iid``; ``quantity`` (at random, shares of all examples drawn over the clients); ``pathological`` (a
            few classes a client); ``dirichlet`` (class proportions drawn for each client, equal sizes);
            ``dirichlet-by-class`` (shares of each class drawn over the clients, unequal sizes); ``natural`` (whose the
            data set says the examples are, ``Split.owners``; of fewer clients than owners, that many owners are drawn);
            or your own, ``module:function``, which is called with the targets, the number of clients and a
            ``torch.Generator`` and gives the positions of every client's examples.
        alpha: Concentration of the Dirichlet draws, above 0: small means few classes a client, or unequal shares.
        classes_per_client: Classes of each client (``pathological``).
        min_size: Fewest examples a client may have (``dirichlet-by-class``, ``quantity``).
        max_attempts: Draws before ``dirichlet-by-class`` gives up.

    Raises:
        ValueError: A field out of range.
    """

    scheme: str = "dirichlet"
    alpha: float = 0.3
    classes_per_client: int = 2
    min_size: int = 10
    max_attempts: int = 100

    def __post_init__(self) -> None:
        schemes = get_args(Scheme)
        if self.scheme not in schemes and not is_own(self.scheme):
            near = difflib.get_close_matches(str(self.scheme), schemes, n=1, cutoff=0.0)
            quoted = [repr(name) for name in schemes]
            raise ValueError(
                f"scheme must be one of {', '.join(quoted[:-1])} or {quoted[-1]}, got {self.scheme!r}; did you mean "
                f"{near[0]!r}?"
            )
        check_alpha(self.alpha)
        for name in ("classes_per_client", "min_size", "max_attempts"):
            check_positive(name, getattr(self, name))


def partition(
    labels: Tensor,
    spec: Partition,
    num_clients: int,
    generator: torch.Generator,
    owners: Tensor | None = None,
) -> list[Tensor]:
    """Deal the examples to clients as ``spec`` says.

    Args:
        labels: Class of every example, int64, shape ``(n,)``; of schemes that do not look at it any targets.
        spec: The scheme and its settings.
        num_clients: N, at least 1.
        generator: Random stream; the partition is a function of it and the other arguments.
        owners: int64, shape ``(n,)``: whose every example is, for ``natural``.

    Returns:
        N sorted int64 index tensors, disjoint, none empty, together all of ``range(n)``; of ``natural`` with fewer
        clients than owners, all examples of those who were drawn.

    Raises:
        ValueError: The partition cannot be made (fewer examples than clients, more classes a client
            than classes, a client that would be empty).
    """
    if spec.scheme == "natural":
        return natural(owners, num_clients, generator)
    if spec.scheme == "iid":
        return iid(labels, num_clients, generator)
    if spec.scheme == "quantity":
        return by_quantity(len(labels), num_clients, spec.alpha, generator, min_size=spec.min_size)
    if is_own(spec.scheme):
        return own_partition(spec.scheme, labels, num_clients, generator)
    if spec.scheme == "pathological":
        return pathological(labels, num_clients, spec.classes_per_client, generator)
    if spec.scheme == "dirichlet":
        return dirichlet_by_client(labels, num_clients, spec.alpha, generator)
    return dirichlet_by_class(
        labels, num_clients, spec.alpha, generator, min_size=spec.min_size, max_attempts=spec.max_attempts
    )


def natural(owners: Tensor | None, num_clients: int, generator: torch.Generator) -> list[Tensor]:
    """An owner is a client; client n has the examples of the n-th smallest owner among those that take part.

    All owners take part where there are as many clients; of fewer clients, that many owners are drawn at random.

    Raises:
        ValueError: The data set names no owners, or fewer than there are clients.
    """
    if owners is None:
        raise ValueError(
            "data.partition.scheme must not be 'natural' for a data set that does not say whose its examples are: name "
            "the column in data.options.owner, or give Split.owners"
        )
    names, of = owners.unique(return_inverse=True)
    if len(names) < num_clients:
        raise ValueError(f"federation.clients must be at most {len(names)}, the number of owners, got {num_clients}")
    order = of.argsort(stable=True)
    parts = list(order.split(of.bincount().tolist()))
    if len(names) == num_clients:
        return parts
    chosen = torch.randperm(len(names), generator=generator)[:num_clients].sort().values
    return [parts[owner] for owner in chosen.tolist()]


def iid(labels: Tensor, num_clients: int, generator: torch.Generator) -> list[Tensor]:
    """Deal at random; sizes differ by at most one.

    Raises:
        ValueError: Fewer examples than clients.
    """
    check_enough(labels, num_clients)
    return sorted_parts(np.array_split(numpy_stream(generator).permutation(len(labels)), num_clients))
