"""Dimensions as factors: taken apart where a view takes them apart, the same where operations say so."""

import pytest

from fedfibos.channels.factors import (
    Mismatch,
    align,
    concatenate,
    constant,
    divide,
    flat,
    fresh,
    is_constant,
    keep_whole,
    leaves,
    length,
    pieces_of,
    regroup,
    same,
)


def test_a_dimension_taken_apart_is_apart_wherever_it_is_used():
    heads = fresh(24)
    other = fresh(24)
    same(heads, other)
    assert [length(dim) for dim in regroup(heads, [4, 6])] == [4, 6]
    assert [factor.size for factor in flat(other)] == [4, 6]
    assert flat(heads)[1] is flat(other)[1]


def test_two_groupings_without_a_common_one_do_not_match():
    one, other = fresh(12), fresh(12)
    regroup(one, [4, 3])
    regroup(other, [3, 4])
    with pytest.raises(Mismatch):
        same(one, other)
    with pytest.raises(Mismatch):
        divide(fresh(10), 4)


def test_a_concatenation_is_cut_where_its_parts_meet():
    joined = concatenate([fresh(3), fresh(5)])
    assert length(joined) == 8
    assert [length(piece) for piece in pieces_of(joined, [3, 5])] == [3, 5]
    assert [length(piece) for piece in pieces_of(joined, [2, 6])] == [2, 6]


def test_the_first_reason_to_stay_whole_counts_and_reaches_what_is_the_same():
    one, other = fresh(5), fresh(5)
    keep_whole(one, "first")
    keep_whole(one, "second")
    same(one, other)
    assert [leaf.why_whole for leaf in leaves(other)] == ["first"]


def test_what_meets_a_constant_stays_whole():
    channels = fresh(5)
    same(channels, constant(5), lambda: "it is added to positions")
    assert [leaf.why_whole for leaf in leaves(channels)] == ["it is added to positions"]
    assert is_constant(constant(5))
    assert not is_constant(fresh(5))


def test_dimensions_of_two_shapes_in_the_smallest_groups():
    assert list(align([2, 12], [24])) == [([0, 1], [0])]
    assert list(align([2, 3, 4], [6, 4])) == [([0, 1], [0]), ([2], [1])]
    assert list(align([4, 6], [8, 3])) == [([0, 1], [0, 1])]
