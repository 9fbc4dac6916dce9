"""Means, their spread over seeds, and when a difference is clear."""

import pytest

from fedfibos.common.statistics import Spread, mean, spread


def test_mean_and_sample_deviation_of_what_is_there():
    assert spread([0.8, None, 0.9]) == Spread(pytest.approx(0.85), pytest.approx(0.0707106781), 2)
    assert spread([0.5]) == Spread(0.5, None, 1)
    assert spread([None]) is None
    assert mean([1.0, 2.0]) == 1.5
    assert mean([]) is None


def test_in_words():
    assert Spread(0.812, 0.004, 3).text(100) == "81.2 ± 0.4"
    assert Spread(0.812, None, 1).text(100) == "81.2 (n = 1)"
    assert Spread(0.014, 0.005, 3).signed(100) == "+1.4 ± 0.5"
    assert Spread(-0.008, 0.004, 3).signed(100) == "−0.8 ± 0.4"


def test_an_interval_is_students():
    """t of 0.975 with 2 degrees of freedom is 4.302653."""
    low, high = Spread(0.02, 0.01, 3).interval()
    assert (low, high) == (
        pytest.approx(0.02 - 4.302653 * 0.01 / 3**0.5),
        pytest.approx(0.02 + 4.302653 * 0.01 / 3**0.5),
    )
    assert Spread(0.02, None, 1).interval() is None


def test_a_clear_difference_has_a_sign_and_a_small_p_value():
    """Differences 1, 2, 3: t = 2 / (1/√3) = 3.4641, p = 0.0742 (2 degrees of freedom)."""
    assert Spread(2.0, 1.0, 3).p_value() == pytest.approx(0.074180, abs=1e-6)
    assert not Spread(2.0, 1.0, 3).clear(1)
    assert Spread(2.0, 0.5, 3).clear(1)
    assert not Spread(2.0, 0.5, 3).clear(-1)
    assert (Spread(2.0, 0.0, 3).p_value(), Spread(0.0, 0.0, 3).p_value(), Spread(2.0, None, 1).p_value()) == (0, 1, 1)
