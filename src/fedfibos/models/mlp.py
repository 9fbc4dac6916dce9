"""Multilayer perceptron."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """Fully connected layers with ReLU between them; the input is flattened.

    Args:
        num_classes: Number of outputs.
        input_shape: Shape of one example; any number of dimensions.
        hidden: Size of each hidden layer; empty is multinomial logistic regression.
        norm: Only ``none``.
    """

    def __init__(
        self,
        num_classes: int,
        input_shape: tuple[int, ...],
        hidden: Sequence[int] = (200, 200),
        norm: str = "none",
    ) -> None:
        super().__init__()
        if norm != "none":
            raise ValueError(f"the mlp has no normalisation, norm must be 'none', got {norm!r}")
        sizes = [math.prod(input_shape), *hidden]
        if min(sizes) < 1:
            raise ValueError(f"layer sizes of the mlp must be at least 1, got {sizes}: see model.options.hidden")
        layers: list[nn.Module] = [nn.Flatten()]
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(sizes[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape ``(batch, num_classes)``."""
        logits: Tensor = self.classifier(self.features(images))
        return logits
