"""What a client of a slice must know of the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.wire.model_outline import outline_of
from fedfibos.wire.outline import decode_outline, encode_outline
from zoo import ZOO, zoo


@pytest.mark.parametrize("name", ZOO)
def test_an_outline_is_that_of_the_model(name):
    example = zoo(name)
    model = model_of(example.module, example=example.example_inputs, axes=example.table)
    outline = outline_of(model, untrained="ab", macs=False)
    data = encode_outline(outline)
    assert decode_outline(data) == outline
    again = decode_outline(data).model(example.module)
    assert again.axes.sizes == model.axes.sizes
    assert again.layout == model.layout


def test_of_a_resnet_the_outline_is_a_kilobyte():
    example = torch.zeros(2, 3, 32, 32)
    model = model_of(build("resnet18", num_classes=10, input_shape=(3, 32, 32)), example=example)
    assert len(encode_outline(outline_of(model))) < 1200


class OptimizedModule(nn.Module):
    """Named, and made, as what ``torch.compile`` gives."""

    def __init__(self, inner):
        super().__init__()
        self._orig_mod = inner

    def forward(self, x):
        return self._orig_mod(x)


def test_a_compiled_model_of_a_client_is_the_servers():
    plain = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    outline = outline_of(model_of(OptimizedModule(plain), example=torch.zeros(2, 4)))
    assert outline.layout.names == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert outline.model(OptimizedModule(plain)).module is plain
