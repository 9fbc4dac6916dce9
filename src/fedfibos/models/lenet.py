"""The convolutional network of the first federated learning paper, after LeNet-5."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fedfibos.models.norm import GROUP_SIZE, image_channels, norm2d


class LeNet(nn.Module):
    """5x5 convolutions, each followed by ReLU and 2x2 max-pooling; a hidden layer; a linear classifier.

    With the default sizes and MNIST's shape it is the network of McMahan et al. (AISTATS 2017, arXiv:1602.05629),
    section 3, of 1,663,370 parameters.

    Args:
        num_classes: Number of outputs.
        input_shape: ``(channels, height, width)``.
        channels: Output channels of each convolution.
        hidden: Width of the hidden layer.
        norm: ``none``, ``group`` or ``batch``; see :func:`fedfibos.models.norm.norm2d`.
        group_size: Channels in a group of GroupNorm.
    """

    def __init__(
        self,
        num_classes: int,
        input_shape: tuple[int, ...],
        channels: Sequence[int] = (32, 64),
        hidden: int = 512,
        norm: str = "none",
        group_size: int = GROUP_SIZE,
    ) -> None:
        super().__init__()
        channels_in = image_channels(input_shape, "lenet")
        if not channels or min(channels) < 1 or hidden < 1:
            raise ValueError(
                f"channels and hidden of the lenet must be at least 1, got {list(channels)} and hidden={hidden}"
            )
        height, width = (size // 2 ** len(channels) for size in input_shape[1:])
        if min(height, width) < 1:
            raise ValueError(f"images of {input_shape[1]}x{input_shape[2]} are too small for {len(channels)} stages")
        layers: list[nn.Module] = []
        for channels_out in channels:
            conv = nn.Conv2d(channels_in, channels_out, kernel_size=5, padding=2, bias=norm == "none")
            layers += [conv, norm2d(norm, channels_out, group_size), nn.ReLU(), nn.MaxPool2d(2)]
            channels_in = channels_out
        self.features = nn.Sequential(*layers)
        self.hidden = nn.Linear(channels_in * height * width, hidden)
        self.classifier = nn.Linear(hidden, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape ``(batch, num_classes)``, of images ``(batch, channels, height, width)``."""
        logits: Tensor = self.classifier(self.hidden(self.features(images).flatten(1)).relu())
        return logits
