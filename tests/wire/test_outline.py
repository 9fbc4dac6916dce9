"""An outline as bytes: damaged ones are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.wire.model_outline import outline_of
from fedfibos.wire.outline import decode_outline, encode_outline
from fedfibos.wire.payload import WireError


def cnn():
    return build("cnn", num_classes=5, input_shape=(1, 8, 8), seed=0, channels=(8, 16))


def test_damaged_outlines_are_refused_in_a_line():
    model = model_of(cnn(), example=torch.zeros(2, 1, 8, 8))
    data = encode_outline(outline_of(model))
    for damaged in (b"", data[:-1], data[:40], b"x" * 40):
        with pytest.raises(WireError, match=r"^the outline of the model cannot be read: "):
            decode_outline(damaged)


class Flattened(nn.Module):
    """Code that writes a number of channels and pixels."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 6, 3), nn.Linear(216, 4)

    def forward(self, x):
        return self.last(self.first(x).relu().view(-1, 216))


def test_sizes_in_code_come_along():
    outline = outline_of(model_of(Flattened(), example=torch.zeros(2, 1, 8, 8)))
    (fit,) = outline.axes.sites.values()
    assert fit[0][1][1:] == (0, 216, 216)
    assert decode_outline(encode_outline(outline)).axes.sites == outline.axes.sites
