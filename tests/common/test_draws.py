"""A look at a user's code draws the same numbers each time and moves no stream."""

import random

import numpy as np
import pytest
import torch

from fedfibos.common.draws import fixed_draws, reseeded


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


def test_a_block_goes_on_after_one_inside_it_and_both_draw_as_if_alone():
    def of(seed):
        return [random.Random(seed).random(), np.random.RandomState(seed).rand()]

    def drawn():
        return [random.random(), np.random.rand()]  # noqa: NPY002

    outer = random.Random(1), np.random.RandomState(1)
    with reseeded(1):
        assert drawn() == [outer[0].random(), outer[1].rand()]
        for _ in range(2):
            with reseeded(2**33 + 7):
                assert drawn() == [random.Random(2**33 + 7).random(), of(7)[1]]
        assert drawn() == [outer[0].random(), outer[1].rand()]


def test_a_program_keeps_the_second_number_of_a_pair_and_its_own_generator():
    """Numpy draws normal numbers in pairs. A generator of another kind has no seed of its own."""
    expected = np.random.RandomState(3).randn(2).tolist()
    np.random.seed(3)  # noqa: NPY002
    first = np.random.randn()  # noqa: NPY002
    with reseeded(1):
        np.random.randn()  # noqa: NPY002
    assert [first, np.random.randn()] == expected  # noqa: NPY002
    with reseeded(3):  # and so does a method that draws before and after its training
        first = np.random.randn()  # noqa: NPY002
        with reseeded(1):
            np.random.randn()  # noqa: NPY002
        assert [first, np.random.randn()] == expected  # noqa: NPY002
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(5))
        with reseeded(1):
            assert np.random.rand() == np.random.RandomState(1).rand()  # noqa: NPY002
        assert np.random.rand() == np.random.Generator(np.random.PCG64(5)).random()  # noqa: NPY002
    finally:
        np.random.set_bit_generator(before)
