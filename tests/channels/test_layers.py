"""Which tensor of a layer tells its output channels."""

import torch
from torch import nn

from fedfibos.channels.layers import outputs_of


def test_of_layers_of_every_kind():
    module = nn.Sequential(
        nn.Linear(3, 4), nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 5, 1), nn.Embedding(7, 3), nn.LSTM(2, 3)
    )
    module.append(nn.LayerNorm(4))
    module.register_parameter("free", nn.Parameter(torch.ones(2)))
    layers, others = outputs_of(module)
    assert {name: (tuple(tensor.shape), dim) for name, (tensor, dim) in layers.items()} == {
        "0": ((4, 3), 0),
        "1": ((2, 1, 3, 3), 0),
        "2": ((2, 5, 1, 1), 1),
        "3": ((7, 3), 1),
        "4": ((12, 3), 1),
        "5": ((4,), 0),
    }
    assert others == ["free"]
