"""Small convolutional network."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fedfibos.models.norm import GROUP_SIZE, image_channels, norm2d


class CNN(nn.Module):
    """3x3 convolutions with normalisation and ReLU, max-pooling between them; then the mean over positions.

    With the default channels it has about 10^5 parameters.

    Args:
        num_classes: Number of outputs.
        input_shape: ``(channels, height, width)``.
        channels: Output channels of each convolution.
        norm: ``group``, ``batch`` or ``none``; see :func:`fedfibos.models.norm.norm2d`.
        group_size: Channels in a group of GroupNorm.
    """

    def __init__(
        self,
        num_classes: int,
        input_shape: tuple[int, ...],
        channels: Sequence[int] = (32, 64, 128),
        norm: str = "group",
        group_size: int = GROUP_SIZE,
    ) -> None:
        super().__init__()
        channels_in = image_channels(input_shape, "cnn")
        if not channels or min(channels) < 1:
            raise ValueError(f"channels of the cnn must be one number or more, each at least 1, got {list(channels)}")
        if min(input_shape[1:]) < 2 ** (len(channels) - 1):
            raise ValueError(f"images of {input_shape[1]}x{input_shape[2]} are too small for {len(channels)} stages")
        layers: list[nn.Module] = []
        for i, channels_out in enumerate(channels):
            if i > 0:
                layers.append(nn.MaxPool2d(2))
            conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=norm == "none")
            layers += [conv, norm2d(norm, channels_out, group_size), nn.ReLU()]
            channels_in = channels_out
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels_in, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape ``(batch, num_classes)``, of images ``(batch, channels, height, width)``."""
        logits: Tensor = self.classifier(self.features(images).mean(dim=(2, 3)))
        return logits
