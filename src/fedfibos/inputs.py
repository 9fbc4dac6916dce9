"""What goes into a model: a batch, and how it is passed."""

from __future__ import annotations

from torch import Tensor, nn

Inputs = Tensor | dict[str, Tensor]
"""A batch as a model's forward takes it: a tensor, or named tensors that are passed as keyword arguments."""


def forward(module: nn.Module, inputs: Inputs) -> Tensor:
    """The module's logits of a batch, shape ``(batch, classes)``."""
    logits: Tensor = module(inputs) if isinstance(inputs, Tensor) else module(**inputs)
    return logits
