"""How often a test example's client has which class."""

import math

import torch

from fedfibos.analysis.class_priors import ClassPriors


def test_by_hand():
    """Client 0 has classes 0, 0, 1; client 2 class 2 alone; -1 is nobody."""
    labels = torch.tensor([0, 0, 1, 1, 2])
    parts = [torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([4])]
    priors = ClassPriors.of(labels, parts, torch.tensor([2, 0, -1, 0]), 3)
    assert priors.row.tolist() == [2, 1, 0, 1]
    assert priors.table[0].tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(priors.table[1], torch.tensor([math.log(2 / 3), math.log(1 / 3), -math.inf]))
    assert priors.table[2].tolist() == [-math.inf, -math.inf, 0.0]
