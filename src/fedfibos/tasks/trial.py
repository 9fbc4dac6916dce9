"""A task tried on two examples before anything is trained: a loss or a metric that cannot be is one line, at once."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfibos.tasks.task import Task


def try_task(task: Task, outputs: Tensor, targets: Tensor) -> None:
    """Raise ValueError unless loss, rows and metrics of a batch are what they must be.

    Args:
        task: The task.
        outputs: Of a model, for a few examples.
        targets: Theirs.
    """
    leaf = outputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        loss = task.loss(leaf, targets)
    if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
        got = f"{loss.dtype} of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"loss must give one number, a tensor of shape (), the mean over the batch, got {got}")
    if not loss.requires_grad:
        raise ValueError("loss must pass a gradient to the outputs, got one that does not depend on them")
    if (found := float(loss.detach())) < 0 and not task.signed:
        raise ValueError(f"loss must be at least 0, or the task say signed = True, got {found:g}")
    with torch.no_grad():
        rows = task.rows(outputs.detach(), targets)
        for metric in task.metrics:
            value = metric.value(rows.double())
            if isinstance(value, Tensor) and value.numel() != 1:
                raise ValueError(f"metric {metric.name!r} must be one number, got shape {tuple(value.shape)}")
            if not isinstance(value, Tensor | int | float):
                raise ValueError(f"metric {metric.name!r} must be one number, got {type(value).__name__}")
