"""Residual networks for small images (He et al., Deep Residual Learning, CVPR 2016, arXiv:1512.03385)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from fedfibos.models.norm import GROUP_SIZE, image_channels, norm2d


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, ReLU after the sum.

    The shortcut is the identity, or a 1x1 convolution with normalisation where the shape changes.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int, norm: str, group_size: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = norm2d(norm, channels_out, group_size)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, padding=1, bias=False)
        self.norm2 = norm2d(norm, channels_out, group_size)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, norm2d(norm, channels_out, group_size))

    def forward(self, x: Tensor) -> Tensor:
        """Feature map in, feature map out."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, stages of basic blocks, mean over positions, linear classifier.

    The stem is that for small images: one 3x3 convolution of stride 1 and no max-pooling. Every stage but
    the first halves the resolution.

    Args:
        num_classes: Number of outputs.
        input_shape: ``(channels, height, width)``.
        channels: Channels of each stage.
        blocks: Basic blocks of each stage.
        norm: ``group`` or ``batch``; see :func:`fedfibos.models.norm.norm2d`.
        group_size: Channels in a group of GroupNorm.
    """

    def __init__(
        self,
        num_classes: int,
        input_shape: tuple[int, ...],
        channels: Sequence[int],
        blocks: Sequence[int],
        norm: str = "group",
        group_size: int = GROUP_SIZE,
    ) -> None:
        super().__init__()
        if norm not in ("group", "batch"):
            raise ValueError(f"norm of a resnet must be 'group' or 'batch', got {norm!r}")
        if len(channels) != len(blocks) or not channels:
            raise ValueError(f"a resnet needs channels for each of its {len(blocks)} stages, got {list(channels)}")
        width = channels[0]
        self.conv1 = nn.Conv2d(image_channels(input_shape, "resnet"), width, 3, 1, padding=1, bias=False)
        self.norm1 = norm2d(norm, width, group_size)
        layers: list[nn.Module] = []
        for stage, (channels_out, num_blocks) in enumerate(zip(channels, blocks, strict=True)):
            for block in range(num_blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(BasicBlock(width, channels_out, stride, norm, group_size))
                width = channels_out
        self.blocks = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape ``(batch, num_classes)``, of images ``(batch, channels, height, width)``."""
        features = self.blocks(functional.relu(self.norm1(self.conv1(images))))
        logits: Tensor = self.classifier(features.mean(dim=(2, 3)))
        return logits


def resnet8(
    num_classes: int,
    input_shape: tuple[int, ...],
    channels: Sequence[int] = (16, 32, 64),
    norm: str = "group",
    group_size: int = GROUP_SIZE,
) -> ResNet:
    """ResNet-8: three stages of one basic block; about 78,000 parameters.

    Args:
        num_classes: Number of outputs.
        input_shape: ``(channels, height, width)``.
        channels: Channels of each stage.
        norm: ``group`` or ``batch``; see :func:`fedfibos.models.norm.norm2d`.
        group_size: Channels in a group of GroupNorm.
    """
    return ResNet(num_classes, input_shape, channels, (1, 1, 1), norm, group_size)


def resnet18(
    num_classes: int,
    input_shape: tuple[int, ...],
    channels: Sequence[int] = (64, 128, 256, 512),
    norm: str = "group",
    group_size: int = GROUP_SIZE,
) -> ResNet:
    """ResNet-18 for small images: four stages of two basic blocks; 11,173,962 parameters with 10 classes.

    Args:
        num_classes: Number of outputs.
        input_shape: ``(channels, height, width)``.
        channels: Channels of each stage.
        norm: ``group`` or ``batch``; see :func:`fedfibos.models.norm.norm2d`.
        group_size: Channels in a group of GroupNorm.
    """
    return ResNet(num_classes, input_shape, channels, (2, 2, 2, 2), norm, group_size)
