"""Theorem 1, Proposition 1, Lemma 1: what the top-k selections minimise, and when they part."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_federation import gaussian_data, random_params, tiny_model
from torch import Tensor

from fedfibos.analysis.theory import boundary_violations, coefficient_of_variation, dataset_fisher, jaccard, surrogate
from fedfibos.backend.topk import top_k

fixed = settings(derandomize=True, deadline=None, max_examples=150)

TINY = 2.0**-149  # the smallest float32 above zero
odd_floats = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, TINY, -TINY, 3 * TINY, math.inf, -math.inf, 3.4028234e38])
scores = st.lists(st.one_of(odd_floats, st.floats(width=32, allow_nan=False)), min_size=1, max_size=40)
positive = st.floats(2.0**-10, 2.0**10, width=32)


def f32(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def mask_of(d: int, selected: tuple[int, ...]) -> Tensor:
    mask = torch.zeros(d, dtype=torch.bool)
    mask[list(selected)] = True
    return mask


def all_selections(d: int, k: int) -> list[Tensor]:
    return [mask_of(d, chosen) for chosen in itertools.combinations(range(d), k)]


# --- exact selection -------------------------------------------------------------------------------------------


@fixed
@given(scores, st.data())
def test_top_k_is_a_stable_sort_by_score_then_position(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)))
    exact = f32(values).tolist()
    wanted = sorted(range(len(exact)), key=lambda i: (-exact[i], i))[:k]
    assert torch.nonzero(top_k(f32(values), k)).flatten().tolist() == sorted(wanted)


@pytest.mark.parametrize(
    ("values", "k", "wanted"),
    [
        ([1.0, 1.0, 1.0, 1.0], 2, [0, 1]),
        ([-0.0, 0.0, -0.0], 1, [0]),
        ([0.0, TINY, -TINY], 1, [1]),
        ([-math.inf, -0.0, 0.0], 2, [1, 2]),
        ([math.inf, 1.0, math.inf, math.inf], 2, [0, 2]),
        ([2.0, 3.0, 3.0, 1.0, 3.0], 2, [1, 2]),
    ],
)
def test_top_k_cases(values: list[float], k: int, wanted: list[int]) -> None:
    assert torch.nonzero(top_k(f32(values), k)).flatten().tolist() == wanted


def test_top_k_refuses_nan_wherever_it_sits() -> None:
    for position in range(3):
        values = [3.0, 2.0, 1.0]
        values[position] = math.nan
        with pytest.raises(ValueError, match="must not be NaN, got 1 of 3"):
            top_k(f32(values), 1)


# --- Theorem 1 -------------------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 100, width=32), st.floats(-100, 100, width=32)), min_size=8, max_size=8))
def test_theorem_1_weighted_top_k_minimises_the_surrogate_over_all_subsets(pairs: list[tuple[float, float]]) -> None:
    """ε(TopK(F²x̃²)) is the minimum over the (8 choose k) selections, for every k."""
    fisher, values = f32([f for f, _ in pairs]), f32([x for _, x in pairs])
    for k in range(9):
        best = min(surrogate(fisher, values, mask) for mask in all_selections(8, k))
        chosen = top_k(fisher * values.abs(), k)  # the order of F²x̃² is that of F|x̃|
        assert surrogate(fisher, values, chosen) == pytest.approx(best, rel=1e-6, abs=1e-80)


def test_theorem_1_selection_is_unique_for_distinct_scores() -> None:
    generator = torch.Generator().manual_seed(3)
    fisher, values = torch.rand(8, generator=generator), torch.randn(8, generator=generator)
    for k in range(1, 8):
        chosen = top_k(fisher * values.abs(), k)
        others = [m for m in all_selections(8, k) if not torch.equal(m, chosen)]
        assert surrogate(fisher, values, chosen) < min(surrogate(fisher, values, m) for m in others)


def test_surrogate_sums_what_is_left_out() -> None:
    """F = (1, 2, 3), x̃ = (5, −2, 1): I = (25, 16, 9); without coordinate 0: 16 + 9 = 25."""
    assert surrogate(f32([1, 2, 3]), f32([5, -2, 1]), mask_of(3, (0,))) == 25.0
    assert surrogate(f32([1, 2, 3]), f32([5, -2, 1]), mask_of(3, (0, 1, 2))) == 0.0


# --- Proposition 1 ---------------------------------------------------------------------------------------------


@fixed
@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=30), st.data())
def test_proposition_1_under_assumption_4(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    """Where F orders I = F²x̃² on every pair, the Fisher selection's ε is at most magnitude's, and the minimum.

    Assumption 4 is made true by sorting F and F|x̃| together; magnitudes then have any order.
    """
    fisher = f32(sorted({f for f, _ in pairs}))
    weighted = f32(sorted({w for _, w in pairs}))
    d = min(len(fisher), len(weighted))
    assume(d >= 2)
    order = torch.tensor(data.draw(st.permutations(range(d))))
    fisher, weighted = fisher[:d][order], weighted[:d][order]
    values = weighted.double() / fisher.double()  # float64: dividing in float32 could break the ties of I
    k = data.draw(st.integers(1, d - 1))
    by_fisher, by_magnitude = top_k(fisher, k), top_k(values.abs(), k)
    assert boundary_violations(fisher, values, k) == 0.0
    mine, theirs = surrogate(fisher, values, by_fisher), surrogate(fisher, values, by_magnitude)
    assert mine == pytest.approx(surrogate(fisher, values, top_k(weighted, k)), rel=1e-9)
    if torch.equal(by_fisher, by_magnitude):
        assert mine == theirs
    else:
        assert mine < theirs  # the scores are distinct: strictly


def test_proposition_1_fails_without_assumption_4() -> None:
    """F = (3, 2), x̃ = (0.1, 10), k = 1: Fisher keeps 0 and leaves out 2²·10² = 400; magnitude leaves out .09."""
    fisher, values = f32([3.0, 2.0]), f32([0.1, 10.0])
    by_fisher, by_magnitude = top_k(fisher, 1), top_k(values.abs(), 1)
    assert surrogate(fisher, values, by_fisher) == 400.0
    assert surrogate(fisher, values, by_magnitude) == pytest.approx(0.09)
    assert boundary_violations(fisher, values, 1) == 1.0


@fixed
@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=30), st.data())
def test_no_boundary_violation_is_enough_for_theorem_1(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    """Only the pairs across the boundary matter: none violated, and TopK(F) minimises ε; the share says which holds."""
    fisher, values = f32([f for f, _ in pairs]), f32([x for _, x in pairs])
    k = data.draw(st.integers(1, len(pairs) - 1))
    mine = surrogate(fisher, values, top_k(fisher, k))
    best = surrogate(fisher, values, top_k(fisher.double() * values.double(), k))
    assert best <= mine * (1 + 1e-9)
    if boundary_violations(fisher, values, k) == 0.0 and len(set(fisher.tolist())) == len(pairs):
        assert mine == pytest.approx(best, rel=1e-9)


# --- Assumption 4, measured ------------------------------------------------------------------------------------


def violations_by_hand(fisher: Tensor, values: Tensor, k: int) -> float:
    selected = top_k(fisher, k).tolist()
    f, x = fisher.double().tolist(), values.double().abs().tolist()
    inside = [j for j in range(len(f)) if selected[j]]
    outside = [j for j in range(len(f)) if not selected[j]]
    bad = sum(f[j] > f[i] and f[j] * x[j] <= f[i] * x[i] for j in inside for i in outside)
    return bad / max(len(inside) * len(outside), 1)


few_values = st.sampled_from([0.0, TINY, 0.5, 1.0, 2.0])


@fixed
@given(
    st.one_of(
        st.lists(st.tuples(few_values, few_values), min_size=1, max_size=25),
        st.lists(
            st.tuples(st.floats(0, 2.0**100, width=32), st.floats(-(2.0**100), 2.0**100, width=32)),
            min_size=1,
            max_size=25,
        ),
    ),
    st.data(),
)
def test_boundary_violations_equal_the_quadratic_count(pairs: list[tuple[float, float]], data: st.DataObject) -> None:
    fisher, values = f32([f for f, _ in pairs]), f32([x for _, x in pairs])
    k = data.draw(st.integers(0, len(pairs)))
    assert boundary_violations(fisher, values, k) == violations_by_hand(fisher, values, k)


def test_boundary_violations_count_past_32_bits() -> None:
    """d = 200 000 distinct F and x̃ = 0: every I is 0, so all 10^10 pairs violate."""
    assert boundary_violations(torch.arange(1.0, 200_001.0), torch.zeros(200_000), 100_000) == 1.0


def test_coordinates_of_equal_fisher_violate_nothing() -> None:
    """All F equal: the selection goes by position, and Assumption 4 has no pair to speak of."""
    assert boundary_violations(torch.ones(4), f32([0.0, 1.0, 2.0, 3.0]), 2) == 0.0


# --- Lemma 1 ---------------------------------------------------------------------------------------------------


@fixed
@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=20), st.data())
def test_a_reversed_pair_across_the_boundary_parts_the_selections(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    """j in and l out by Fisher, |x̃_l| > |x̃_j|: magnitude cannot keep j and leave l, so the selections differ."""
    fisher, values = f32([f for f, _ in pairs]), f32([x for _, x in pairs])
    k = data.draw(st.integers(1, len(pairs) - 1))
    by_fisher, by_magnitude = top_k(fisher, k), top_k(values.abs(), k)
    reversed_pair = bool(values[~by_fisher].max() > values[by_fisher].min())
    assert reversed_pair <= (not torch.equal(by_fisher, by_magnitude))


def test_lemma_1_divergence_has_the_probability_of_the_reversal() -> None:
    """Two weights of equal size; one SGD step on one of two equally likely examples reverses them for one of the two.

    Loss ½(x·a)² at x = (1, 1), η = .1, k = 1. On a = (2, 1) the gradient is (6, 3) and x becomes (.4, .7): the second
    weight is now the larger one. On a = (−1, 1) the gradient is 0, x stays, and magnitude keeps the first by position.
    Fisher keeps the first either way, as its mean squared gradient is the larger one at both points.
    """
    start, step_size = torch.ones(2, dtype=torch.float64), 0.1
    examples = [torch.tensor([2.0, 1.0]).double(), torch.tensor([-1.0, 1.0]).double()]

    def gradient(x: Tensor, a: Tensor) -> Tensor:
        return (x @ a) * a

    parted = 0
    for drawn in examples:
        x = start - step_size * gradient(start, drawn)
        fisher = torch.stack([gradient(x, a).square() for a in examples]).mean(0)
        assert fisher[0] > fisher[1]  # Fisher keeps coordinate 0 whatever was drawn
        parted += not torch.equal(top_k(fisher, 1), top_k(x.abs(), 1))
    assert parted / len(examples) == 0.5


# --- Jaccard and the coefficient of variation ------------------------------------------------------------------


def test_jaccard_cases() -> None:
    a, b, none = mask_of(4, (0, 1)), mask_of(4, (1, 2)), mask_of(4, ())
    assert jaccard(a, b) == 1 / 3
    assert jaccard(a, a) == 1.0
    assert jaccard(a, none) == 0.0
    assert jaccard(none, none) == 1.0
    with pytest.raises(ValueError, match="mask must be bool of shape"):
        jaccard(a, b.float())
    with pytest.raises(ValueError, match="mask must be bool of shape"):
        jaccard(a, b[:3])


def test_jaccard_of_random_selections_is_gamma_over_two_minus_gamma() -> None:
    generator = torch.Generator().manual_seed(0)
    for share in (0.5, 0.0625):
        k = int(share * 40_000)
        a, b = (top_k(torch.rand(40_000, generator=generator), k) for _ in range(2))
        assert jaccard(a, b) == pytest.approx(share / (2 - share), abs=0.01)


def test_coefficient_of_variation_cases() -> None:
    """(1, 3): mean 2, standard deviation 1. One peak among n zeros: √(n−1)."""
    assert coefficient_of_variation(f32([1.0, 3.0])) == 0.5
    assert coefficient_of_variation(torch.full((7,), 0.1)) == 0.0
    assert coefficient_of_variation(torch.zeros(3)) == 0.0
    assert coefficient_of_variation(f32([4.0] + [0.0] * 100)) == pytest.approx(10.0)
    for bad, shown in (([1.0, -1.0], "1 of 2"), ([math.nan, math.inf], "2 of 2")):
        with pytest.raises(ValueError, match=f"finite and not negative, got {shown}"):
            coefficient_of_variation(f32(bad))


def test_coefficient_of_variation_does_not_lose_small_scores_to_float32() -> None:
    """10^7 scores of 1e-8 around one of 1: float32 sums would drop digits that float64 keeps."""
    scores = torch.full((10_000_000,), 1e-8)
    scores[0] = 1.0
    n, small = 10_000_000, float(scores[1])
    mean = (1.0 + (n - 1) * small) / n
    std = math.sqrt(((1.0 - mean) ** 2 + (n - 1) * (small - mean) ** 2) / n)
    assert coefficient_of_variation(scores) == pytest.approx(std / mean, rel=1e-9)


def test_the_selections_of_a_real_model_differ() -> None:
    """Lemma 1's remark on a real network: Fisher and magnitude agree neither fully nor not at all."""
    model = tiny_model(hidden=12)
    params = random_params(model, 1)
    fisher = dataset_fisher(model, params, gaussian_data(1, num_examples=40))
    k = model.layout.num_maskable // 2
    assert 0.0 < jaccard(top_k(fisher, k), top_k(params.flat.abs(), k)) < 1.0
