"""What goes into a model: a batch, and how it is passed."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

Inputs = Tensor | dict[str, Tensor]
"""A batch as a model's forward takes it: a tensor, or named tensors that are passed as keyword arguments."""


def check_inputs(what: str, inputs: Any, examples: int | None = None) -> None:
    """Raise ValueError unless a batch is what a model takes.

    Args:
        what: Whose batch it is, for the message.
        inputs: The batch.
        examples: How many it must have; None: it does not matter.
    """
    wanted = "a batch must be a tensor or a dict of tensors, passed by name"
    if isinstance(inputs, dict):
        for name, value in inputs.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"{what}: {wanted}, got {type(value).__name__} for {name!r}")
            check_dense(f"{what}: {name!r}", value)
            _check_length(f"{what}: {name!r}", value, examples)
    elif not isinstance(inputs, Tensor):
        raise ValueError(f"{what}: {wanted}, got {type(inputs).__name__}")
    else:
        check_dense(f"{what}: inputs", inputs)
        _check_length(what, inputs, examples)


def _check_length(what: str, tensor: Tensor, examples: int | None) -> None:
    """Raise ValueError unless a batch's tensor has so many examples."""
    if examples is not None and (not tensor.dim() or len(tensor) != examples):
        got = f"{len(tensor)}" if tensor.dim() else "a single number"
        raise ValueError(f"{what}: batch() must give as many examples as it is asked for, {examples}, got {got}")


def check_dense(what: str, tensor: Tensor) -> None:
    """Raise ValueError for a sparse tensor."""
    if tensor.layout != torch.strided:
        raise ValueError(f"{what} must be dense tensors (tensor.to_dense()), got {tensor.layout}")


def described(inputs: Inputs) -> str:
    """Type and shape of an example: ``float32 of shape (3, 32, 32)``, by name where there are names."""
    if isinstance(inputs, Tensor):
        return f"{str(inputs.dtype).removeprefix('torch.')} of shape {tuple(inputs.shape[1:])}"
    return ", ".join(f"{name!r} {described(tensor)}" for name, tensor in inputs.items())


def copied(inputs: Inputs) -> Inputs:
    """A batch of its own memory, for a forward pass that may change it in place."""
    if isinstance(inputs, dict):
        return {name: tensor.clone() for name, tensor in inputs.items()}
    return cast(Inputs, tree_map(Tensor.clone, inputs))  # of an example by position too, which no data set gives


def on_cpu(inputs: Inputs) -> Inputs:
    """A batch in the processor's memory."""
    return {name: tensor.cpu() for name, tensor in inputs.items()} if isinstance(inputs, dict) else inputs.cpu()


def forward(module: nn.Module, inputs: Inputs) -> Tensor:
    """The module's logits of a batch, shape ``(batch, classes)``."""
    logits: Tensor = module(inputs) if isinstance(inputs, Tensor) else module(**inputs)
    return logits
