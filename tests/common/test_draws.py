"""A look at a user's code draws the same numbers each time and moves no stream."""

import random

import numpy as np
import pytest
import torch

from fedfibos.common.draws import fixed_draws


def draws():
    return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002


def test_the_same_numbers_each_time_and_the_streams_stay_where_they_were():
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = draws()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    with fixed_draws():
        first = draws()
    with fixed_draws():
        assert draws() == first
    with fixed_draws(1):
        assert draws() != first
    with pytest.raises(ZeroDivisionError), fixed_draws():
        _ = 1 / 0
    assert draws() == expected
