"""Segmentation of synthetic shapes: discs and squares on noise, and a small network that names every pixel."""

from pathlib import Path

import torch
from torch import Tensor, nn

from fedfibos import Split, TensorData

SIZE = 24


def shapes(folder: Path | None, train: int = 600, test: int = 200) -> Split:
    """Grey images with a disc and a square each; the target is 0 (ground), 1 (disc) or 2 (square) for every pixel."""
    generator = torch.Generator().manual_seed(0)
    number = train + test
    down, across = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    places = torch.randint(5, SIZE - 5, (4, number, 1, 1), generator=generator)
    sizes = torch.randint(3, 6, (2, number, 1, 1), generator=generator)
    disc = (down - places[0]) ** 2 + (across - places[1]) ** 2 <= sizes[0] ** 2
    square = ((down - places[2]).abs() <= sizes[1]) & ((across - places[3]).abs() <= sizes[1])
    targets = torch.where(square, 2, torch.where(disc, 1, 0))
    images = (disc | square).float() + 0.3 * torch.randn(number, SIZE, SIZE, generator=generator)
    images = images[:, None]
    return Split(
        TensorData(images[:train], targets[:train]),
        TensorData(images[train:], targets[train:]),
        classes=("ground", "disc", "square"),
    )


class Mapper(nn.Module):
    """Down, and up again with what was there before: a U-Net of one step."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...], width: int = 16) -> None:
        super().__init__()
        channels = input_shape[0]
        self.first = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(1, width), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, padding=1), nn.GroupNorm(1, 2 * width), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.GroupNorm(1, 2 * width), nn.ReLU())
        self.up = nn.Upsample(scale_factor=2)
        self.last = nn.Conv2d(3 * width, num_classes, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of every pixel, shape ``(batch, num_classes, height, width)``."""
        first = self.first(images)
        scores: Tensor = self.last(torch.cat([first, self.up(self.deep(self.down(first)))], 1))
        return scores
