"""Sums of weights over holders, by hand: counted in bytes or added as numbers, they are the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.aggregate import Sums
from fedfibos.model import model_of
from fedfibos.params import Layout
from fedfibos.server.tally import Tally
from fedfibos.submodel import Mask, Slice
from fedfibos.types import Upload

FIRST, LAST = torch.tensor([True, True, False]), torch.tensor([False, True, True])


def upload(held, counted=None):
    return Upload(Mask(held, 3 if held is None else int(held.sum())), torch.zeros(3), 0.0, 1, counted=counted)


def piece(counted=None):
    """Holds coordinates 2 and 0, in this order."""
    layout = Layout(("weight",), ((2,),), 1)
    return Upload(Slice(torch.tensor([2, 0]), layout, (("a", 2),)), torch.zeros(2), 0.0, 1, counted=counted)


def test_masks_of_weight_one_are_counted():
    tally = Tally(3)
    for held in (FIRST, LAST, None):
        tally.add(upload(held), 1.0)
    assert tally.total.tolist() == [2.0, 3.0, 2.0]
    assert tally.total.dtype == torch.float32
    tally.add(upload(LAST), 1.0)
    assert tally.total.tolist() == [2.0, 4.0, 3.0], "what was read goes on"


def test_more_masks_than_a_byte_counts():
    tally = Tally(3)
    for _ in range(600):
        tally.add(upload(FIRST), 1.0)
    assert tally.total.tolist() == [600.0, 600.0, 0.0]


def test_other_weights_are_added_in_order():
    """In float32 ⅓ + 1 + 1 + 1 is rounded thrice; ⅓ + 3 would be 3.3333332538604736."""
    tally = Tally(3)
    for weight in (1 / 3, 1.0, 1.0, 1.0):
        tally.add(upload(FIRST), weight)
    assert tally.total.tolist() == [3.3333334922790527, 3.3333334922790527, 0.0]
    mixed = Tally(3)
    for held, weight in ((FIRST, 1.0), (LAST, 0.25), (None, 1.0)):
        mixed.add(upload(held), weight)
    assert mixed.total.tolist() == [2.0, 2.25, 1.25]


def test_whoever_does_not_count_as_a_holder_is_left_out():
    tally = Tally(3)
    tally.add(upload(FIRST, counted=torch.tensor([True, False, False])), 1.0)
    tally.add(upload(FIRST, counted=torch.tensor([True, False, False])), 0.5)
    assert tally.total.tolist() == [1.5, 0.0, 0.0]


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_slices_among_masks(weight):
    tally = Tally(3)
    tally.add(upload(LAST), weight)
    tally.add(piece(), weight)
    tally.add(piece(counted=torch.tensor([True, False])), weight)
    tally.add(upload(LAST), weight)
    assert tally.total.tolist() == [weight, 2 * weight, 4 * weight]


def test_a_statistic_covers_the_first_coordinates_alone():
    tally = Tally(2)
    tally.add(upload(FIRST), 1.0)
    tally.add(upload(LAST, counted=LAST), 1.0)
    tally.add(upload(None), 1.0)
    assert tally.total.tolist() == [2.0, 3.0]


def test_sums_can_be_replaced():
    """As differential privacy does; later uploads are added to what was put in."""
    sums = Sums(model_of(nn.Linear(3, 1, bias=False)).layout)
    sums.add(upload(FIRST))
    sums.holders = torch.tensor([0.5, 0.5, 0.5])
    sums.observers = torch.tensor([1.0, 2.0, 3.0])
    assert sums.holders.tolist() == [0.5, 0.5, 0.5]
    assert sums.observers.tolist() == [1.0, 2.0, 3.0]
