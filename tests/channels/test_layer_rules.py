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


class Unpooled(nn.Module):
    """What was largest goes back to where it was, of each channel by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(1, 6, 1), nn.Conv2d(6, 6, 1), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, where = nn.functional.max_pool2d(self.first(x), 2, return_indices=True)
        h = nn.functional.max_unpool2d(self.second(h), where, 2)
        return self.last((h * torch.arange(16.0).view(4, 4)).sum((2, 3)))


def test_channels_that_are_unpooled_are_those_that_were_pooled():
    axes = derive_axes(Unpooled(), IMAGES)
    assert axes.sizes == {"first": 6}
    assert axes.dims["second.weight"][:2] == ((Part("first"),), (Part("first"),))


@pytest.mark.parametrize(
    "pool",
    [
        lambda h: nn.functional.avg_pool2d(h, (2, 1)),
        lambda h: nn.functional.max_pool2d(h, (2, 1)),
        lambda h: nn.functional.interpolate(h, scale_factor=(2, 1)),
        lambda h: nn.functional.adaptive_avg_pool2d(h, (2, None)),
    ],
)
def test_texts_that_are_pooled_as_images_keep_their_channels(pool):
    class Texts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Embedding(9, 6), nn.Linear(6, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.last(pool(self.first(ids)[:, None])[:, 0].mean(1))

    axes = derive_axes(Texts(), torch.randint(9, (4, 8), generator=torch.Generator().manual_seed(0)))
    assert axes.sizes == {"first": 6}
