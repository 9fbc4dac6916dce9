"""Top-k: exact, ties by position, whatever the sample suggests; the same through NumPy and through torch alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfibos.backend import topk as select
from fedfibos.backend.topk import top_k


def reference(scores: torch.Tensor, k: int) -> torch.Tensor:
    """Sort by (score descending, position ascending), take k."""
    order = sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i))[:k]
    held = torch.zeros(len(scores), dtype=torch.bool)
    held[order] = True
    return held


@pytest.fixture
def small(monkeypatch):
    """A sample and blocks so small that short vectors go through them."""
    monkeypatch.setattr(select, "SAMPLE", 4)
    monkeypatch.setattr(select, "BLOCK", 7)


def test_ties_go_to_the_lowest_positions():
    scores = torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0])
    assert top_k(scores, 3).tolist() == [True, True, False, True, False]
    assert top_k(torch.zeros(4), 2).tolist() == [True, True, False, False]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("in_torch", [False, True])
@pytest.mark.parametrize("deviations", [(0.0, 0.0), (0.0, 0.5), (0.5, 5.0), (5.0, 5.0)])
def test_exact_for_any_bracket(monkeypatch, in_torch, deviations):
    monkeypatch.setattr(select, "DEVIATIONS", deviations)
    if in_torch:
        monkeypatch.setattr(select, "_through_numpy", lambda tensor: False)
    generator = torch.Generator().manual_seed(5)
    for d in (1, 2, 5, 23, 64):
        for levels in (1, 2, 5, 1000):
            scores = torch.randint(levels, (d,), generator=generator).float() - levels / 2
            for k in range(d + 1):
                assert torch.equal(top_k(scores, k), reference(scores, k)), (d, levels, k)


values = st.one_of(st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, 1e-45, 3e38]), st.floats(-2, 2, width=32))


@given(st.lists(values, min_size=1, max_size=40), st.data())
def test_any_values(numbers, data):
    scores = torch.tensor(numbers)
    k = data.draw(st.integers(0, len(numbers)))
    assert torch.equal(top_k(scores, k), reference(scores, k))


@pytest.mark.parametrize("period", [1, 2, 3, 8])
def test_a_sample_that_misleads_costs_time_not_exactness(period):
    """Every sampled score is the same, every other one is not."""
    d = 4 * select.SAMPLE + 11
    scores = torch.rand(d, generator=torch.Generator().manual_seed(0))
    scores[:: 3 * period] = 2.0  # 3 is the stride
    for k in (1, d // 16, d // 2, d - 1):
        held = top_k(scores, k)
        assert int(held.sum()) == k
        assert float(scores[held].min()) >= float(scores[~held].max())


def test_the_stride_is_prime():
    assert [select._prime_up_to(n) for n in (0, 1, 2, 4, 10, 85, 951)] == [1, 1, 2, 3, 7, 83, 947]


def test_large_vectors_with_ties_at_the_threshold():
    d = 3 * select.SAMPLE
    scores = torch.rand(d, generator=torch.Generator().manual_seed(1)).square()
    scores[::3] = 0.0
    order = torch.sort(scores, descending=True, stable=True).indices
    for k in (d // 2, d // 4, d - 5):
        expected = torch.zeros(d, dtype=torch.bool)
        expected[order[:k]] = True
        assert torch.equal(top_k(scores, k), expected)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"k must be in \[0, 3\], got 4"):
        top_k(torch.zeros(3), 4)
    with pytest.raises(ValueError, match="must not be NaN, got 1 of 3"):
        top_k(torch.tensor([1.0, math.nan, 2.0]), 1)


@pytest.mark.parametrize("in_torch", [False, True])
@pytest.mark.parametrize("place", [0, 1, 200_001])
def test_a_single_nan_is_found_wherever_it_lies(monkeypatch, in_torch, place):
    """In the sample, beside it, and in the last block."""
    if in_torch:
        monkeypatch.setattr(select, "_through_numpy", lambda tensor: False)
    scores = torch.rand(200_002, generator=torch.Generator().manual_seed(0))
    scores[place] = math.nan
    for k in (0, 1, 100_000, 200_002):
        with pytest.raises(ValueError, match="must not be NaN, got 1 of 200002"):
            top_k(scores, k)


def test_a_narrow_bracket_that_misses_is_replaced_by_a_wider_one(monkeypatch):
    """A bracket of half-width 0 around the sample's own threshold holds few scores; the wide one is enough."""
    monkeypatch.setattr(select, "DEVIATIONS", (0.0, 9.0))
    monkeypatch.setattr(select, "_certain_bracket", lambda *_: pytest.fail("a full selection"))
    generator = torch.Generator().manual_seed(2)
    for d in (300_000, 400_001):
        scores = torch.rand(d, generator=generator)
        for k in (d // 16, d // 2, d - 1000):
            held = top_k(scores, k)
            assert int(held.sum()) == k
            assert float(scores[held].min()) > float(scores[~held].max())


def test_scores_in_double_precision_may_lie_below_single_precision():
    scores = torch.rand(200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-300
    for k in (1, 1000, 150_000):
        chosen = top_k(scores, k)
        assert int(chosen.sum()) == k
        assert float(scores[chosen].min()) >= float(scores[~chosen].max())
