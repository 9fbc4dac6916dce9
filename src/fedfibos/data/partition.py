"""How a data set is dealt to clients: pure functions of the labels and a random stream.

Every partition is a list of int64 index tensors, one a client, sorted; they are disjoint and together
hold every example once.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Scheme = Literal["iid", "pathological", "dirichlet", "dirichlet-by-class", "natural"]

MIN_ALPHA = 1e-100
"""Below this, log U / α (``_log_dirichlet``) leaves the range of float64."""


@dataclass(frozen=True)
class Partition:
    """Which partition, and its settings. Fields that the scheme does not use are ignored.

    Attributes:
        scheme: ``iid``; ``pathological`` (a few classes a client); ``dirichlet`` (class proportions
            drawn for each client, equal sizes); ``dirichlet-by-class`` (shares of each class drawn
            over the clients, unequal sizes); ``natural`` (whose the data set says the examples are,
            ``Split.owners``: as many clients as there are owners).
        alpha: Concentration of the Dirichlet draws, above 0: small means few classes a client.
        classes_per_client: Classes of each client (``pathological``).
        min_size: Fewest examples a client may have (``dirichlet-by-class``).
        max_attempts: Draws before ``dirichlet-by-class`` gives up.

    Raises:
        ValueError: A field out of range.
    """

    scheme: Scheme = "dirichlet"
    alpha: float = 0.3
    classes_per_client: int = 2
    min_size: int = 10
    max_attempts: int = 100

    def __post_init__(self) -> None:
        schemes = get_args(Scheme)
        if self.scheme not in schemes:
            near = difflib.get_close_matches(str(self.scheme), schemes, n=1, cutoff=0.0)
            raise ValueError(
                f"scheme must be one of {', '.join(schemes)}, got {self.scheme!r}; did you mean {near[0]!r}?"
            )
        _check_alpha(self.alpha)
        for name in ("classes_per_client", "min_size", "max_attempts"):
            _check_positive(name, getattr(self, name))


def partition(
    labels: Tensor,
    spec: Partition,
    num_clients: int,
    generator: torch.Generator,
    owners: Tensor | None = None,
) -> list[Tensor]:
    """Deal the examples to clients as ``spec`` says.

    Args:
        labels: int64, shape ``(n,)``.
        spec: The scheme and its settings.
        num_clients: N, at least 1.
        generator: Random stream; the partition is a function of it and the other arguments.
        owners: int64, shape ``(n,)``: whose every example is, for ``natural``.

    Returns:
        N sorted int64 index tensors: disjoint, none empty, together all of ``range(n)``.

    Raises:
        ValueError: The partition cannot be made (fewer examples than clients, more classes a client
            than classes, a client that would be empty).
    """
    if spec.scheme == "natural":
        return natural(owners, num_clients)
    if spec.scheme == "iid":
        return iid(labels, num_clients, generator)
    if spec.scheme == "pathological":
        return pathological(labels, num_clients, spec.classes_per_client, generator)
    if spec.scheme == "dirichlet":
        return dirichlet_by_client(labels, num_clients, spec.alpha, generator)
    return dirichlet_by_class(
        labels, num_clients, spec.alpha, generator, min_size=spec.min_size, max_attempts=spec.max_attempts
    )


def natural(owners: Tensor | None, num_clients: int) -> list[Tensor]:
    """Every owner is a client; client n has the n-th smallest owner's examples.

    Raises:
        ValueError: The data set names no owners, or not as many as there are clients.
    """
    if owners is None:
        raise ValueError("scheme must not be 'natural' for a data set that does not say whose its examples are")
    names, of = owners.unique(return_inverse=True)
    if len(names) != num_clients:
        raise ValueError(f"federation.clients must be {len(names)}, the number of owners, got {num_clients}")
    order = of.argsort(stable=True)
    return list(order.split(of.bincount().tolist()))


def iid(labels: Tensor, num_clients: int, generator: torch.Generator) -> list[Tensor]:
    """Deal at random; sizes differ by at most one.

    Raises:
        ValueError: Fewer examples than clients.
    """
    _check_enough(labels, num_clients)
    return _sorted_parts(np.array_split(_rng(generator).permutation(len(labels)), num_clients))


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
    _check_enough(labels, num_clients)
    _check_positive("classes_per_client", classes_per_client)
    members = _members(labels)
    if classes_per_client > len(members):
        raise ValueError(
            f"classes_per_client must be at most the number of classes, {len(members)}, got {classes_per_client}"
        )
    places = num_clients * classes_per_client
    if places < len(members):
        raise ValueError(
            f"num_clients times classes_per_client must be at least the number of classes, {len(members)}, "
            f"or classes would be left out, got {num_clients} times {classes_per_client}"
        )
    rng = _rng(generator)
    groups = _class_groups(len(members), num_clients, classes_per_client, rng)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(num_clients)]
    for k, (label, indices) in enumerate(members.items()):
        owners = [client for client, group in enumerate(groups) if k in group]
        if len(indices) < len(owners):
            raise ValueError(
                f"class {label} has {len(indices)} examples for its {len(owners)} clients; at least one "
                "each is wanted: use fewer clients or fewer classes_per_client"
            )
        shares = np.array_split(rng.permutation(indices), len(owners))
        for client, share in zip(owners, shares, strict=True):
            parts[client].append(share)
    return _sorted_parts([np.concatenate(part) for part in parts])


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


def dirichlet_by_client(labels: Tensor, num_clients: int, alpha: float, generator: torch.Generator) -> list[Tensor]:
    """Class proportions p_n ~ Dir(α) for every client n; sizes differ by at most one.

    The construction of Acar et al. (FedDyn, ICLR 2021) and of FIARSE's CIFAR experiments: clients take
    turns at random until each has its size; at a turn the client draws a class from p_n, restricted
    to the classes not yet used up. Here the turns between two exhaustions are drawn at once, which ends
    after at most as many passes as there are classes, for any α.

    Raises:
        ValueError: Fewer examples than clients, or α not above 0.
    """
    _check_enough(labels, num_clients)
    _check_alpha(alpha)
    rng = _rng(generator)
    members = [rng.permutation(indices) for indices in _members(labels).values()]
    left = np.array([len(indices) for indices in members])
    log_shares = _log_dirichlet(alpha, (num_clients, len(members)), rng)
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
    for k, indices in enumerate(members):
        taken[drawn == k] = indices
    return _sorted_parts([taken[turns == client] for client in range(num_clients)])


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
    for client, steps in enumerate(cumulative):
        at = turns == client
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
    _check_enough(labels, num_clients)
    _check_alpha(alpha)
    _check_positive("min_size", min_size)
    _check_positive("max_attempts", max_attempts)
    if min_size * num_clients > len(labels):
        raise ValueError(
            f"min_size times num_clients must be at most the number of examples, {len(labels)}, "
            f"got {min_size} times {num_clients}"
        )
    rng = _rng(generator)
    members = list(_members(labels).values())
    best = 0
    for _ in range(max_attempts):
        owners = _owners_by_class(members, num_clients, alpha, rng)
        smallest = int(np.bincount(np.concatenate(owners), minlength=num_clients).min())
        if smallest >= min_size:
            client_of = np.empty(len(labels), dtype=np.int64)
            for indices, owner in zip(members, owners, strict=True):
                client_of[rng.permutation(indices)] = owner
            return _sorted_parts([np.flatnonzero(client_of == client) for client in range(num_clients)])
        best = max(best, smallest)
    raise ValueError(
        f"dirichlet-by-class with alpha = {alpha:g} gave a client fewer than min_size = {min_size} examples "
        f"in all {max_attempts} attempts (the best draw's smallest client had {best}): use a larger alpha, "
        "a smaller min_size or fewer clients"
    )


def _owners_by_class(
    members: list[NDArray[np.int64]], num_clients: int, alpha: float, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """One draw: for every class, the client of each of its examples (sorted by client)."""
    fair = sum(map(len, members)) / num_clients
    sizes = np.zeros(num_clients, dtype=np.int64)
    owners = []
    for indices in members:
        log_shares = _log_dirichlet(alpha, (1, num_clients), rng)
        shares = _exponential(np.where(sizes < fair, log_shares, -np.inf))[0]
        cumulative = np.cumsum(shares)
        cuts = np.round(cumulative / cumulative[-1] * len(indices)).astype(np.int64)
        counts = np.diff(cuts, prepend=0)
        sizes += counts
        owners.append(np.repeat(np.arange(num_clients), counts))
    return owners


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
    rng = _rng(generator)
    held = [train_labels[part].cpu().numpy() for part in train_parts]
    parts: list[list[NDArray[np.int64]]] = [[] for _ in train_parts]
    for label, indices in _members(test_labels).items():
        counts = np.array([np.count_nonzero(labels == label) for labels in held], dtype=np.int64)
        if counts.sum() == 0:
            continue
        shares = _largest_remainder(counts, len(indices), rng)
        pieces = np.split(rng.permutation(indices), np.cumsum(shares)[:-1])
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return _sorted_parts([np.concatenate([np.empty(0, dtype=np.int64), *part]) for part in parts])


def _largest_remainder(weights: NDArray[np.int64], total: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``total`` units dealt in proportion to integer weights, exactly; equal remainders in random order."""
    quotas, remainders = np.divmod(weights * total, weights.sum())
    order = rng.permutation(len(weights))
    order = order[np.argsort(-remainders[order], kind="stable")]
    quotas[order[: total - quotas.sum()]] += 1
    return quotas


def _log_dirichlet(alpha: float, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Logarithms of unnormalised Dirichlet draws, one a row.

    Dir(α) is a normalised vector of Gamma(α); Gamma(α) = Gamma(α + 1) · U^(1/α). In logarithms no
    entry underflows, so a row still has proportions when its likely classes are used up.
    """
    return np.asarray(np.log(rng.standard_gamma(alpha + 1, shape)) + np.log1p(-rng.random(shape)) / alpha)


def _exponential(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row's exponentials, scaled so that the largest is 1 (every row has a finite entry)."""
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def _members(labels: Tensor) -> dict[int, NDArray[np.int64]]:
    """Class -> positions of its examples, for the classes that occur, ascending."""
    values = labels.cpu().numpy()
    return {int(label): np.flatnonzero(values == label) for label in np.unique(values)}


def _sorted_parts(parts: list[NDArray[np.int64]]) -> list[Tensor]:
    """Each part sorted (neighbouring memory for the client that reads it), as int64 tensors."""
    return [torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts]


def _rng(generator: torch.Generator) -> np.random.Generator:
    """A numpy stream derived from one draw of ``generator``."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))


def _check_enough(labels: Tensor, num_clients: int) -> None:
    _check_positive("num_clients", num_clients)
    if len(labels) < num_clients:
        raise ValueError(f"there must be at least one example a client, got {len(labels)} for {num_clients} clients")


def _check_alpha(alpha: float) -> None:
    if not (MIN_ALPHA <= alpha < math.inf):
        raise ValueError(f"alpha must be above 0 (from {MIN_ALPHA:g}) and finite, got {alpha}")


def _check_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
