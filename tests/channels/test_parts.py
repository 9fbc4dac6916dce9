"""Factors written as parts of named axes."""

from fedfibos.channels.axes import Part
from fedfibos.channels.factors import Factor, concatenate, fresh
from fedfibos.channels.parts import parts_of


def test_an_axis_within_or_around_other_positions():
    outer, inner = Factor(4), Factor(6)
    assert parts_of([outer, inner], {id(inner): "w"}) == (Part("w", 4, 1),)
    assert parts_of([outer, inner], {id(outer): "h"}) == (Part("h", 1, 6),)
    assert parts_of([outer, inner], {}) == (Part(None, 1, 24),)


def test_a_concatenation_is_part_after_part():
    one, other = Factor(4), Factor(6)
    dim = concatenate([[one], [other], fresh(2)])
    assert parts_of(dim, {id(one): "h", id(other): "w"}) == (Part("h"), Part("w"), Part(None, 1, 2))
    assert parts_of(dim, {id(one): "h"}) == (Part("h"), Part(None, 1, 8))
