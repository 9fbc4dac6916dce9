"""Outputs that end where targets go on are said, and others are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.probes.bounds import bound_cautions

X = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([[-2.0], [3.0]])


def ending(*last: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1), *last)


@pytest.mark.parametrize(
    ("last", "targets", "said"),
    [
        (nn.Sigmoid(), TARGETS, ["never below 0, but targets go down to -2", "never above 1, but targets go up to 3"]),
        (nn.Tanh(), TARGETS, ["never below -1, but targets go down to -2", "never above 1, but targets go up to 3"]),
        (nn.ReLU(), TARGETS, ["never below 0, but targets go down to -2"]),
        (nn.Softplus(), TARGETS, ["never below 0, but targets go down to -2"]),
        (nn.Sigmoid(), TARGETS.sigmoid(), []),
        (nn.ReLU(), TARGETS.abs(), []),
        (nn.Identity(), 1000 * TARGETS, []),
        (nn.LeakyReLU(), TARGETS, []),
    ],
)
def test_bounds_of_outputs(last, targets, said):
    lines = bound_cautions(ending(last), X, targets)
    assert [line.partition("the model's outputs are ")[2].partition(", whatever")[0] for line in lines] == said
