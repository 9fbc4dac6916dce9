"""The fast passes say what the obvious ones say, on the values where they could differ."""

from __future__ import annotations

import pytest
import torch

from fedfibos.backend.reductions import all_finite, all_true, any_true, chosen, extremes, indicator, zero_outside
from fedfibos.submodel import Mask

TINY = 1e-45  # the smallest positive float32, below the normal ones
LARGE = 3e38


def test_an_indicator_is_ones_and_zeros() -> None:
    values = indicator(torch.tensor([True, False, True]))
    assert values.dtype == torch.float32
    assert values.tolist() == [1.0, 0.0, 1.0]
    assert indicator(torch.tensor([], dtype=torch.bool)).tolist() == []


@pytest.mark.parametrize("held", [[], [False], [True], [False, False, True], [True] * 300, [False] * 300])
def test_some_is_any(held: list[bool]) -> None:
    assert any_true(torch.tensor(held, dtype=torch.bool)) == any(held)
    assert all_true(torch.tensor(held, dtype=torch.bool)) == all(held)
    assert any_true(torch.tensor([True]).expand(5))


def test_chosen_is_one_or_the_other_to_the_bit() -> None:
    """Across their ranges, where a line between the two rounds."""
    inside, outside = torch.tensor([1.0, TINY, 0.1, LARGE, 0.0]), torch.tensor([LARGE, 0.3, TINY, 1e-20, 5.0])
    for held in ([True] * 5, [False] * 5, [True, False, True, False, True]):
        expected = torch.where(torch.tensor(held), inside, outside)
        got = chosen(torch.tensor(held), inside.clone(), outside)
        assert got.view(torch.int32).tolist() == expected.view(torch.int32).tolist()


@pytest.mark.parametrize(
    ("values", "finite"),
    [
        ([], True),
        ([0.0, -1.0, TINY], True),
        ([LARGE] * 64, True),  # their sum overflows
        ([LARGE] * 64 + [-LARGE] * 64, True),
        ([1.0, float("nan")], False),
        ([1.0, float("inf")], False),
        ([float("inf"), float("-inf")], False),
        ([LARGE] * 64 + [float("inf")], False),
    ],
)
def test_all_finite(values: list[float], finite: bool) -> None:
    assert all_finite(torch.tensor(values)) is finite


@pytest.mark.parametrize("filler", [0, 300])
def test_extremes_are_the_least_and_the_largest_and_nan_where_one_is(filler: int) -> None:
    rest = [0.5] * filler
    assert extremes(torch.tensor([1.0, -3.0, *rest, 2.0])) == (-3.0, 2.0)
    assert extremes(torch.tensor([LARGE, *rest, float("-inf")])) == (float("-inf"), torch.tensor(LARGE).item())
    assert str(extremes(torch.tensor([1.0, *rest, float("nan"), 2.0]))) == "(nan, nan)"
    assert extremes(torch.tensor([])) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("off_the_mask", "zero"),
    [(0.0, True), (-0.0, True), (1.0, False), (TINY, False), (-TINY, False), (float("nan"), False)],
)
def test_zero_outside(off_the_mask: float, zero: bool) -> None:
    held = torch.tensor([True, False, True])
    assert zero_outside(torch.tensor([5.0, off_the_mask, 0.0]), held) is zero
    assert zero_outside(torch.tensor([off_the_mask, 0.0, off_the_mask]), held)


def test_a_mask_is_of_bools() -> None:
    with pytest.raises(TypeError, match=r"a mask's held must be torch\.bool, got torch\.float32"):
        Mask(torch.ones(3), 3)
