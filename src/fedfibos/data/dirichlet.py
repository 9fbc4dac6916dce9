"""Class proportions drawn from a Dirichlet distribution: for every client, or for every class over the clients."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.data.dealing import check_enough, check_positive, members, numpy_stream, positions_by, sorted_parts

MIN_ALPHA = 1e-100
"""Below this, log U / α (``_log_dirichlet``) leaves the range of float64."""


def check_alpha(alpha: float) -> None:
    """Raise ValueError for a concentration that cannot be drawn with."""
    if not (MIN_ALPHA <= alpha < math.inf):
        raise ValueError(f"alpha must be above 0 (from {MIN_ALPHA:g}) and finite, got {alpha}")


def dirichlet_by_client(labels: Tensor, num_clients: int, alpha: float, generator: torch.Generator) -> list[Tensor]:
    """Class proportions p_n ~ Dir(α) for every client n; sizes differ by at most one.

    The construction of Acar et al. (FedDyn, ICLR 2021) and of FIARSE's CIFAR experiments: clients take
    turns at random until each has its size; at a turn the client draws a class from p_n, restricted
    to the classes not yet used up. Here the turns between two exhaustions are drawn at once, which ends
    after at most as many passes as there are classes, for any α.

    Raises:
        ValueError: Fewer examples than clients, or α not above 0.
    """
    check_enough(labels, num_clients)
    check_alpha(alpha)
    rng = numpy_stream(generator)
    by_class = [rng.permutation(indices) for indices in members(labels).values()]
    left = np.array([len(indices) for indices in by_class])
    log_shares = _log_dirichlet(alpha, (num_clients, len(by_class)), rng)
    turns = rng.permutation(np.arange(len(labels)) % num_clients)
    uniform = rng.random(len(labels))
    drawn = np.empty(len(labels), dtype=np.int64)
    begin = 0
    while begin < len(turns):
        classes = _draw(log_shares, left > 0, turns[begin:], uniform[begin:])
        accepted = _before_overdraft(classes, left)
        drawn[begin : begin + accepted] = classes[:accepted]
        left = left - np.bincount(classes[:accepted], minlength=len(left))
        begin += accepted
    taken = np.empty(len(labels), dtype=np.int64)
    for k, indices in enumerate(by_class):
        taken[drawn == k] = indices
    return sorted_parts([taken[positions] for positions in positions_by(turns, num_clients)])


def _draw(
    log_shares: NDArray[np.float64],
    open_classes: NDArray[np.bool_],
    turns: NDArray[np.int64],
    uniform: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The class drawn at each turn by inverting each client's cumulative shares of the open classes."""
    shares = _exponential(np.where(open_classes, log_shares, -np.inf))
    cumulative = np.cumsum(shares, axis=1)
    classes = np.empty(len(turns), dtype=np.int64)
    for steps, at in zip(cumulative, positions_by(turns, len(cumulative)), strict=True):
        classes[at] = np.searchsorted(steps, uniform[at] * steps[-1], side="right")
    return classes


def _before_overdraft(classes: NDArray[np.int64], left: NDArray[np.int64]) -> int:
    """How many of the draws come before the first that finds its class used up."""
    first = len(classes)
    for k, stock in enumerate(left):
        positions = np.flatnonzero(classes == k)
        if len(positions) > stock:
            first = min(first, int(positions[stock]))
    return first


def dirichlet_by_class(
    labels: Tensor,
    num_clients: int,
    alpha: float,
    generator: torch.Generator,
    *,
    min_size: int = 10,
    max_attempts: int = 100,
) -> list[Tensor]:
    """For every class, shares over the clients ~ Dir(α); sizes differ.

    The construction of Yurochkin et al. (ICML 2019) with the cap of Li et al. (ICDE 2022), as in
    FIARSE's AG News experiment: a client that already has n / N examples gets no more of the
    classes that follow, and the whole draw is repeated until every client has ``min_size``.

    Raises:
        ValueError: α not above 0; fewer than ``min_size`` examples a client; or no draw of
            ``max_attempts`` gave every client ``min_size`` examples.
    """
    check_enough(labels, num_clients)
    check_alpha(alpha)
    check_positive("min_size", min_size)
    check_positive("max_attempts", max_attempts)
    if min_size * num_clients > len(labels):
        raise ValueError(
            f"min_size times num_clients must be at most the number of examples, {len(labels)}, "
            f"got {min_size} times {num_clients}"
        )
    rng = numpy_stream(generator)
    by_class = list(members(labels).values())
    best = 0
    for _ in range(max_attempts):
        owners = _owners_by_class(by_class, num_clients, alpha, rng)
        smallest = int(np.bincount(np.concatenate(owners), minlength=num_clients).min())
        if smallest >= min_size:
            client_of = np.empty(len(labels), dtype=np.int64)
            for indices, owner in zip(by_class, owners, strict=True):
                client_of[rng.permutation(indices)] = owner
            return sorted_parts(positions_by(client_of, num_clients))
        best = max(best, smallest)
    raise ValueError(
        f"dirichlet-by-class with alpha = {alpha:g} gave a client fewer than min_size = {min_size} examples "
        f"in all {max_attempts} attempts (the best draw's smallest client had {best}): use a larger alpha, "
        "a smaller min_size or fewer clients"
    )


def _owners_by_class(
    by_class: list[NDArray[np.int64]], num_clients: int, alpha: float, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """One draw: for every class, the client of each of its examples (sorted by client)."""
    fair = sum(map(len, by_class)) / num_clients
    sizes = np.zeros(num_clients, dtype=np.int64)
    owners = []
    for indices in by_class:
        log_shares = _log_dirichlet(alpha, (1, num_clients), rng)
        shares = _exponential(np.where(sizes < fair, log_shares, -np.inf))[0]
        cumulative = np.cumsum(shares)
        cuts = np.round(cumulative / cumulative[-1] * len(indices)).astype(np.int64)
        counts = np.diff(cuts, prepend=0)
        sizes += counts
        owners.append(np.repeat(np.arange(num_clients), counts))
    return owners


def _log_dirichlet(alpha: float, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Logarithms of unnormalised Dirichlet draws, one a row.

    Dir(α) is a normalised vector of Gamma(α); Gamma(α) = Gamma(α + 1) · U^(1/α). In logarithms no
    entry underflows, so a row still has proportions when its likely classes are used up.
    """
    return np.asarray(np.log(rng.standard_gamma(alpha + 1, shape)) + np.log1p(-rng.random(shape)) / alpha)


def _exponential(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row's exponentials, scaled so that the largest is 1 (every row has a finite entry)."""
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))
