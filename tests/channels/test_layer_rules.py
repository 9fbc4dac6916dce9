"""What layers do with channels: the axes that are left, and how the last layer reads them."""

import pytest
import torch
from between import BetweenImages
from torch import nn

from fedfibos.channels.axes import Part
from fedfibos.channels.derive import derive_axes

IMAGES = torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("layer", "inputs", "sizes", "read"),
    [
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), 8, {"first": 8}, Part("first", 1, 1)),
        (nn.Conv2d(8, 6, 3, padding=1, groups=2), 6, {"first": 2}, Part("first", 1, 3)),
        (nn.ConvTranspose2d(8, 5, 2), 5, {"first": 8, "layer": 5}, Part("layer", 1, 1)),
        (nn.BatchNorm2d(8), 8, {"first": 8}, Part("first", 1, 1)),
        (nn.GroupNorm(4, 8), 8, {"first": 4}, Part("first", 1, 2)),
        (nn.GroupNorm(2, 8), 8, {"first": 4}, Part("first", 2, 1)),
        (nn.AvgPool2d(2), 8, {"first": 8}, Part("first", 1, 1)),
        (nn.PixelShuffle(2), 2, {"first": 2}, Part("first", 1, 1)),
        (nn.ChannelShuffle(2), 8, {"first": 2}, Part("first", 4, 1)),
    ],
    ids=["depthwise", "grouped", "transposed", "batch norm", "4 groups", "2 groups", "pool", "pixels", "shuffle"],
)
def test_channels_are_followed(layer, inputs, sizes, read):
    axes = derive_axes(BetweenImages(layer, inputs), IMAGES)
    assert axes.sizes == sizes
    assert axes.dims["last.weight"][1] == (read,)
