"""Batches that are not finite are named before a client's update is blamed for them."""

import math

import torch

from fedfibos.steps.faulty_inputs import faulty_inputs

LABELS = torch.zeros(2, dtype=torch.int64)


def test_the_first_faulty_step_and_how_many_values():
    sound, faulty = torch.ones(2, 3), torch.tensor([[1.0, math.nan, math.inf], [0.0, 0.0, 0.0]])
    said = faulty_inputs([(sound, LABELS), (faulty, LABELS), (faulty, LABELS)])
    assert said.startswith("the inputs of its batch in step 2 have 2 of 6 values that are not finite: ")


def test_named_inputs_are_named():
    inputs = {"ids": torch.ones(2, 3, dtype=torch.int64), "mask": torch.full((2, 2), -math.inf)}
    assert faulty_inputs([(inputs, LABELS)]).startswith("the inputs 'mask' of its batch in step 1 have 4 of 4 values ")


def test_sound_and_empty_batches_are_not_named():
    assert faulty_inputs([(torch.ones(2, 3), LABELS), (torch.ones(0, 3), LABELS[:0]), ({}, LABELS)]) is None
