"""Submodels inside submodels."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos.channels.family import contains, depths, masks_of, slice_within, units_within, with_nested
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.submodel import Mask, full

MODEL = model_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), example=torch.zeros(2, 3))


def mask(*held):
    return Mask(torch.tensor(held, dtype=torch.bool), sum(held))


def test_a_family_of_masks_is_one_vector_of_depths():
    family = replace(mask(1, 1, 1, 0), nested=(mask(1, 1, 0, 0), mask(0, 1, 0, 0)))
    depth = depths(family)
    assert depth.tolist() == [2, 3, 1, 0]
    again = masks_of(depth, (3, 2, 1))
    assert [member.held.tolist() for member in (again, *again.nested)] == [
        [True, True, True, False],
        [True, True, False, False],
        [False, True, False, False],
    ]


def test_what_lies_in_what():
    assert contains(mask(1, 1, 0), mask(0, 1, 0))
    assert not contains(mask(1, 1, 0), mask(0, 0, 1))
    small, smaller = prefix(MODEL, 0.75), prefix(MODEL, 0.5)
    assert contains(small, smaller)
    assert not contains(smaller, small)
    assert contains(full(MODEL.layout), small)
    assert not contains(small, mask(1, 1, 0))


def test_a_slice_inside_a_slice_counts_in_the_outer_ones_coordinates():
    """Of 4 hidden channels the outer holds 0, 1, 2, the inner 0 and 2: rows of 3 inputs each come first."""
    outer = slice_within(full(MODEL.layout), torch.tensor([0, 1, 2]), MODEL.axes, MODEL.layout)
    assert units_within(outer, torch.tensor([2, 0])).tolist() == [0, 2]
    inner = slice_within(outer, torch.tensor([0, 2]), MODEL.axes, MODEL.layout)
    assert inner.widths == (("0", 2),)
    assert inner.index.tolist()[:6] == [0, 1, 2, 6, 7, 8]


def test_members_that_are_no_smaller_are_left_out_and_others_are_refused():
    family = with_nested(mask(1, 1, 0), [mask(1, 1, 0), mask(1, 0, 0)], None, MODEL.layout)
    assert [member.num_held for member in family.nested] == [1]
    with pytest.raises(ValueError, match="needs a method whose submodels nest"):
        with_nested(mask(1, 1, 0), [mask(0, 0, 1)], None, MODEL.layout)
