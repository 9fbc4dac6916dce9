"""Partitions: disjoint, complete, of the promised sizes and classes, and functions of the stream alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfibos.data.dealing import largest_remainder
from fedfibos.data.dirichlet import dirichlet_by_class, dirichlet_by_client
from fedfibos.data.matching import matching_test_split
from fedfibos.data.partition import Partition, iid, partition
from fedfibos.data.pathological import _class_groups, pathological

seeds = st.integers(0, 2**32 - 1)
alphas = st.one_of(st.floats(1e-100, 1e3), st.sampled_from([1e-9, 1e-3, 0.1, 0.3, 1.0, 1e300]))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def labels_and_clients(draw) -> tuple[torch.Tensor, int]:
    """Up to 8 classes of unequal sizes, in any order, and at most as many clients as examples."""
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator(draw(seeds)))]
    return labels, draw(st.integers(1, min(30, len(labels))))


def check_complete(parts: list[torch.Tensor], n: int) -> None:
    """Disjoint and complete: together, every position once; each part sorted int64 and not empty."""
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(n))
    assert all(part.dtype == torch.int64 and len(part) > 0 for part in parts)
    assert all(torch.equal(part, part.sort().values) for part in parts)


def check_equal_sizes(parts: list[torch.Tensor]) -> None:
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(labels_and_clients(), seeds)
def test_iid_is_complete_with_equal_sizes(case, seed):
    labels, num_clients = case
    parts = iid(labels, num_clients, generator(seed))
    assert len(parts) == num_clients
    check_complete(parts, len(labels))
    check_equal_sizes(parts)


@settings(deadline=None)
@given(labels_and_clients(), alphas, seeds)
def test_dirichlet_by_client_is_complete_with_equal_sizes_for_any_alpha(case, alpha, seed):
    labels, num_clients = case
    parts = dirichlet_by_client(labels, num_clients, alpha, generator(seed))
    assert len(parts) == num_clients
    check_complete(parts, len(labels))
    check_equal_sizes(parts)


@settings(deadline=None)
@given(labels_and_clients(), alphas, st.integers(1, 5), seeds)
def test_dirichlet_by_class_is_complete_with_the_minimum_size_or_says_that_it_failed(case, alpha, min_size, seed):
    labels, num_clients = case
    try:
        parts = dirichlet_by_class(labels, num_clients, alpha, generator(seed), min_size=min_size, max_attempts=5)
    except ValueError as error:
        failure = str(error)
    else:
        failure = ""
        assert len(parts) == num_clients
        check_complete(parts, len(labels))
        assert min(len(part) for part in parts) >= min_size
    if failure:
        assert "min_size" in failure
        assert num_clients > 1 or min_size > len(labels)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 30), st.data(), seeds)
def test_pathological_gives_exactly_c_classes_each_split_evenly_over_its_owners(num_classes, num_clients, data, seed):
    fewest = -(-num_classes // num_clients)
    c = data.draw(st.integers(fewest, num_classes))
    counts = data.draw(st.lists(st.integers(30, 60), min_size=num_classes, max_size=num_classes))
    labels = torch.repeat_interleave(torch.arange(num_classes), torch.tensor(counts))
    parts = pathological(labels, num_clients, c, generator(seed))
    assert len(parts) == num_clients
    check_complete(parts, len(labels))
    table = torch.stack([torch.bincount(labels[part], minlength=num_classes) for part in parts])
    assert ((table > 0).sum(1) == c).all()
    owners = (table > 0).sum(0)
    assert owners.max() - owners.min() <= 1
    for k in range(num_classes):
        shares = table[:, k][table[:, k] > 0]
        assert shares.max() - shares.min() <= 1


def test_pathological_on_cifar10_sizes_gives_250_of_each_of_two_classes():
    """100 clients of 2 of 10 classes: 20 owners a class, 5,000 / 20 = 250."""
    labels = torch.arange(50_000) % 10
    for part in pathological(labels, 100, 2, generator(0)):
        counts = torch.bincount(labels[part], minlength=10)
        assert counts[counts > 0].tolist() == [250, 250]


def test_groups_are_permutations_cut_and_repaired_where_they_straddle():
    """5 classes, 5 clients of 3: the sequence is three whole permutations, so each class has 3 groups."""
    for seed in range(50):
        groups = _class_groups(5, 5, 3, np.random.default_rng(seed))
        sequence = [k for group in groups for k in group]
        assert [sorted(sequence[i : i + 5]) for i in (0, 5, 10)] == [[0, 1, 2, 3, 4]] * 3
        assert all(len(set(group)) == 3 for group in groups)


def test_small_alpha_gives_few_classes_and_large_alpha_the_common_proportions():
    labels = torch.arange(10_000) % 10

    def shares(alpha: float) -> torch.Tensor:
        parts = dirichlet_by_client(labels, 20, alpha, generator(1))
        return torch.stack([torch.bincount(labels[part], minlength=10) / len(part) for part in parts])

    # One class, and where that is used up before the client is full, another.
    assert shares(1e-6).topk(2).values.sum(1).median() > 0.9
    assert (shares(1e6) - 0.1).abs().max() < 0.07  # 500 draws a client: standard deviation .013


def test_one_client_holds_a_class_almost_alone_when_alpha_is_small():
    labels = torch.arange(5_000) % 10
    parts = dirichlet_by_class(labels, 4, 0.01, generator(0), min_size=1)
    table = torch.stack([torch.bincount(labels[part], minlength=10) for part in parts])
    assert (table.max(0).values >= 490).sum() >= 7


def test_dirichlet_by_client_has_the_moments_of_the_dirichlet_distribution():
    """E p_k = 1/3 and Var p_k = (1/3)(2/3) / (3 α + 1) = .1170 for α = .3; plenty of each class is left.

    With as many examples as wanted of a class, one draw of a client is one class ~ p: for a client of
    two examples, the chance that both have the same class is E Σ p_k² = 3 (.1170 + 1/9) = .684.
    """
    labels = torch.arange(6_000) % 3
    same = []
    for seed in range(4):
        parts = dirichlet_by_client(labels, 3_000, 0.3, generator(seed))
        same += [float(labels[part[0]] == labels[part[1]]) for part in parts]
    assert np.mean(same) == pytest.approx(0.684, abs=0.02)


@pytest.mark.parametrize("scheme", ["iid", "pathological", "dirichlet", "dirichlet-by-class"])
def test_a_partition_is_a_function_of_the_stream(scheme):
    labels = torch.arange(600) % 6
    spec = Partition(scheme, alpha=1.0, min_size=5)

    def draw(seed: int) -> list[list[int]]:
        return [part.tolist() for part in partition(labels, spec, 8, generator(seed))]

    first = draw(5)
    np.random.seed(1)  # noqa: NPY002 - the global stream must not matter
    torch.manual_seed(1)
    assert draw(5) == first
    assert draw(6) != first


def test_the_front_door_uses_every_field_of_its_scheme():
    labels = torch.arange(400) % 4
    same = [
        (Partition("iid"), iid(labels, 5, generator(2))),
        (Partition("pathological", classes_per_client=3), pathological(labels, 5, 3, generator(2))),
        (Partition("dirichlet", alpha=0.7), dirichlet_by_client(labels, 5, 0.7, generator(2))),
        (
            Partition("dirichlet-by-class", alpha=0.7, min_size=20),
            dirichlet_by_class(labels, 5, 0.7, generator(2), min_size=20),
        ),
    ]
    for spec, wanted in same:
        got = partition(labels, spec, 5, generator(2))
        assert [part.tolist() for part in got] == [part.tolist() for part in wanted]


@settings(deadline=None)
@given(labels_and_clients(), alphas, seeds)
def test_test_split_is_disjoint_complete_and_within_one_of_the_training_proportions(case, alpha, seed):
    labels, num_clients = case
    train_parts = dirichlet_by_client(labels, num_clients, alpha, generator(seed))
    num_classes = int(labels.max()) + 1
    test_labels = torch.arange(7 * (num_classes + 1)) % (num_classes + 1)  # one class nobody trains on
    parts = matching_test_split(labels, train_parts, test_labels, generator(seed))
    held = torch.cat(parts)
    assert len(held.unique()) == len(held)
    assert torch.equal(held.sort().values, (test_labels < num_classes).nonzero().flatten())
    train = torch.stack([torch.bincount(labels[part], minlength=num_classes) for part in train_parts])
    test = torch.stack([torch.bincount(test_labels[part], minlength=num_classes) for part in parts])
    assert ((test - 7 * train / train.sum(0)).abs() < 1).all()
    assert (test[train == 0] == 0).all()


def test_a_literal_test_split():
    """Class 0: training counts 3 and 1, four test examples: 3 and 1. Class 1: only client 1 has it: both."""
    train_labels = torch.tensor([0, 0, 0, 0, 1, 1])
    parts = matching_test_split(
        train_labels,
        [torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])],
        torch.tensor([0, 1, 0, 2, 0, 1, 0]),
        generator(0),
    )
    assert len(parts[0]) == 3
    assert set(parts[0].tolist()) < {0, 2, 4, 6}
    assert sorted(torch.cat(parts).tolist()) == [0, 1, 2, 4, 5, 6]
    assert {1, 5} < set(parts[1].tolist())


def test_largest_remainder_by_hand():
    """7 units by 5 : 3 : 2 are 3.5, 2.1, 1.4: floors 3, 2, 1, and the seventh to the remainder .5."""
    assert largest_remainder(np.array([5, 3, 2]), 7, np.random.default_rng(0)).tolist() == [4, 2, 1]
    assert largest_remainder(np.array([0, 4]), 3, np.random.default_rng(0)).tolist() == [0, 3]


def test_equal_remainders_favour_no_client():
    first = [largest_remainder(np.array([1, 1]), 1, np.random.default_rng(s))[0] for s in range(200)]
    assert 70 < sum(first) < 130


@pytest.mark.parametrize(
    ("spec", "num_clients", "message"),
    [
        (Partition("iid"), 13, r"at least one example a client, got 12 for 13 clients"),
        (Partition("dirichlet"), 13, r"at least one example a client, got 12 for 13 clients"),
        (Partition("pathological"), 13, r"at least one example a client, got 12 for 13 clients"),
        (Partition("dirichlet-by-class", min_size=1), 13, r"at least one example a client, got 12"),
        (Partition("iid"), 0, r"num_clients must be an integer of at least 1, got 0"),
        (
            Partition("pathological", classes_per_client=4),
            2,
            r"^data.partition.classes_per_client must be at most the number of classes, 3, got 4",
        ),
        (Partition("pathological", classes_per_client=1), 2, r"classes would be left out, got 2 times 1"),
        (
            Partition("pathological", classes_per_client=3),
            5,
            r"class 0 has 4 examples for its 5 clients; at least one each",
        ),
        (Partition("dirichlet-by-class", min_size=5), 3, r"at most the number of examples, 12, got 5 times 3"),
        (
            Partition("dirichlet-by-class", alpha=1e-9, min_size=1, max_attempts=7),
            6,
            r"alpha = 1e-09.*min_size = 1 examples in all 7 attempts.*smallest client had 0",
        ),
    ],
)
def test_impossible_partitions_say_why_in_one_line(spec, num_clients, message):
    with pytest.raises(ValueError, match=message) as caught:
        partition(torch.arange(12) % 3, spec, num_clients, generator(0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scheme": "dirichlet-per-class"}, r"scheme must be.*did you mean 'dirichlet-by-class'"),
        ({"scheme": "idd"}, r"did you mean 'iid'"),
        ({"alpha": 0.0}, r"alpha must be above 0.*got 0.0"),
        ({"alpha": -1.0}, r"alpha must be above 0.*got -1.0"),
        ({"alpha": float("nan")}, r"alpha must be above 0.*got nan"),
        ({"alpha": float("inf")}, r"alpha must be above 0.*got inf"),
        ({"classes_per_client": 0}, r"classes_per_client must be an integer of at least 1, got 0"),
        ({"min_size": 0}, r"min_size must be an integer of at least 1, got 0"),
        ({"max_attempts": 2.5}, r"max_attempts must be an integer of at least 1, got 2.5"),
    ],
)
def test_fields_out_of_range_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Partition(**fields)
