"""Averages of a cohort."""

from __future__ import annotations

import torch
from torch import nn

from fedfibos.aggregate import Sums
from fedfibos.model import model_of
from fedfibos.submodel import Mask
from fedfibos.types import Upload


def test_weights_decide_the_average():
    """Two uploads of 1 and 3 with weights 3 and 1: (3·1 + 1·3)/4 = 3/2 for both averages."""
    model = model_of(nn.Linear(2, 1, bias=False))
    sums = Sums(model.layout)
    for value, weight in ((1.0, 3.0), (3.0, 1.0)):
        sums.add(Upload(Mask(None, 2), torch.full((2,), value), 0.0, 1), weight)
    assert sums.mean_delta("participants").tolist() == [1.5, 1.5]
    assert sums.mean_delta("holders").tolist() == [1.5, 1.5]
