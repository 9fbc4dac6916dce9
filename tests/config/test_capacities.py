"""Capacities: exact counts, who gets which, fixed and redrawn."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfibos.common.validation import ExperimentError
from fedfibos.config.capacities import NON_UNIFORM, UNIFORM, Capacities, check_table, counts
from fedfibos.config.experiment import load_experiment, to_toml


def dealt(capacities, t):
    """Every client's capacity in a round."""
    return tuple(capacities.of(range(capacities.num_clients), t))


@pytest.mark.parametrize(
    ("shares", "num_clients", "expected"),
    [
        ([1 / 3, 1 / 3, 1 / 3], 10, (4, 3, 3)),  # equal remainders: the first named
        ([1 / 3, 1 / 3, 1 / 3], 11, (4, 4, 3)),
        ([0.5, 0.3, 0.2], 7, (4, 2, 1)),  # 3.5, 2.1, 1.4: the largest remainder is .5
        ([0.29, 0.71], 100, (29, 71)),  # 0.29 * 100 is 28.999999999999996 in floating point
        ([0.1, 0.2, 0.7], 10, (1, 2, 7)),
        ([0.33333, 0.33333, 0.33333], 9, (3, 3, 3)),
        ([1.0], 3, (3,)),
    ],
)
def test_counts_by_largest_remainder(shares, num_clients, expected):
    table = {1.0 / 2**i: share for i, share in enumerate(shares)}
    assert counts(table, num_clients) == expected


def test_the_papers_two_fleets_of_100_clients():
    assert list(zip(UNIFORM, counts(UNIFORM, 100), strict=True)) == [
        (1.0, 20), (0.5, 20), (0.25, 20), (0.125, 20), (0.0625, 20)
    ]  # fmt: skip
    assert list(zip(NON_UNIFORM, counts(NON_UNIFORM, 100), strict=True)) == [
        (1.0, 10), (0.5, 10), (0.25, 30), (0.125, 30), (0.0625, 20)
    ]  # fmt: skip


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(1, 500))
def test_counts_are_complete_and_within_one_of_the_share(weights, num_clients):
    table = {1.0 / (i + 1): weight / sum(weights) for i, weight in enumerate(weights)}
    dealt = counts(table, num_clients)
    assert sum(dealt) == num_clients
    for share, count in zip(table.values(), dealt, strict=True):
        assert math.floor(share * num_clients - 1e-6) <= count <= math.ceil(share * num_clients + 1e-6)


def test_fixed_capacities_stay_and_their_order_is_seeded():
    capacities = Capacities(UNIFORM, 20, "fixed", seed=3)
    first = dealt(capacities, 0)
    assert first == dealt(capacities, 57)
    assert Counter(first) == {capacity: 4 for capacity in UNIFORM}
    assert first != tuple(sorted(first, reverse=True))  # client ids say nothing about capacity
    assert first != dealt(Capacities(UNIFORM, 20, "fixed", seed=4), 0)


def test_dynamic_capacities_are_redrawn_with_exact_counts():
    capacities = Capacities(NON_UNIFORM, 20, "dynamic", seed=0)
    rounds = [dealt(capacities, t) for t in range(5)]
    assert len(set(rounds)) == 5
    assert all(Counter(r) == {1.0: 2, 0.5: 2, 0.25: 6, 0.125: 6, 0.0625: 4} for r in rounds)
    assert rounds[3] == dealt(capacities, 3)  # a round's draw depends on no other round


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "capacities must name at least one capacity, got an empty table"),
        ({0.0: 1.0}, r"capacity must be in \(0, 1\], got 0"),
        ({-0.5: 1.0}, r"capacity must be in \(0, 1\], got -0.5"),
        ({1.5: 1.0}, r"capacity must be in \(0, 1\], got 1.5"),
        ({math.nan: 1.0}, r"capacity must be in \(0, 1\], got nan"),
        ({1.0: 0.5, 0.5: 0.4}, "the shares of the capacities must sum to 1, got 0.9"),
        ({1.0: 1.5, 0.5: -0.5}, r"the share of capacity 1 must be in \(0, 1\], got 1.5"),
        ({1.0: 0.99, 0.5: 0.01}, "got none for capacity 0.5: its share is 0.01 of 10 clients"),
    ],
)
def test_tables_that_cannot_be_dealt(table, message):
    with pytest.raises(ValueError, match=message):
        check_table(table, 10)


def test_capacities_of_known_devices(experiment_file, tmp_path):
    """By client id, in every round; the shares follow, and the record gives the same fleet."""
    path = experiment_file("federation = { clients = 4, assigned = [0.25, 1.0, 0.25, 0.5] }")
    experiment = load_experiment(path)
    assert dealt(experiment.capacities(), 3) == (0.25, 1.0, 0.25, 0.5)
    assert experiment.capacities().of([3, 0], 7) == [0.5, 0.25]
    assert experiment.federation.capacities == {1.0: 0.25, 0.5: 0.25, 0.25: 0.5}
    (tmp_path / "again.toml").write_text(to_toml(experiment))
    assert load_experiment(tmp_path / "again.toml") == experiment
    for wrong, message in (
        ("[1.0]", r"federation\.assigned must be 4 capacities, one a client, .* got 1 with 'fixed'"),
        ("[1.0, 1.0, 1.0, 0.0]", r"federation\.assigned must be capacities in \(0, 1\], got 0 for client 3"),
    ):
        with pytest.raises(ExperimentError, match=message):
            load_experiment(path, [f"federation.assigned={wrong}"])
    with pytest.raises(ExperimentError, match="with assignment = 'fixed', got 4 with 'dynamic'"):
        load_experiment(path, ["federation.assignment=dynamic"])


def test_a_budget_is_one_word_or_several_different_ones(experiment_file):
    path = experiment_file('method.name = "heterofl"')
    assert load_experiment(path).federation.budget == ("parameters",)
    assert load_experiment(path, ["federation.budget=macs"]).federation.budget == ("macs",)
    both = load_experiment(path, ['federation.budget=["macs", "bytes"]'])
    assert both.federation.budget == ("macs", "bytes")
    assert 'budget = [\n    "macs",\n    "bytes",\n]' in to_toml(both)
    for wrong, said in (
        ("mcas", "budget must be one of 'parameters', 'macs'.*did you mean 'macs'"),
        ("[]", r"budget must be one word, or several different ones, got \[\]"),
        ('["macs", "macs"]', r"budget must be one word, or several different ones, got \['macs', 'macs'\]"),
    ):
        with pytest.raises(ExperimentError, match=said):
            load_experiment(path, [f"federation.budget={wrong}"])
