"""A task tried on two examples before anything is trained: a loss or a metric that cannot be is one line, at once."""

from __future__ import annotations

import math

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
    found = float(loss.detach())
    if not math.isfinite(found) and bool(outputs.isfinite().all()):
        raise ValueError(f"loss must be a finite number, got {found:g} of two examples whose outputs are finite")
    if found < 0 and not task.signed:
        raise ValueError(f"loss must be at least 0, or the task say signed = True, got {found:g}")
    with torch.no_grad():
        rows = task.rows(outputs.detach(), targets)
        _check_alone(task, outputs.detach(), targets, rows)
        for metric in task.metrics:
            value = metric.value(rows.double())
            if isinstance(value, Tensor) and value.numel() != 1:
                raise ValueError(f"metric {metric.name!r} must be one number, got shape {tuple(value.shape)}")
            if not isinstance(value, Tensor | int | float):
                raise ValueError(f"metric {metric.name!r} must be one number, got {type(value).__name__}")


def _check_alone(task: Task, outputs: Tensor, targets: Tensor, rows: Tensor) -> None:
    """Raise ValueError where an example leaves another number of values alone than beside another one (a broadcast)."""
    try:
        alone = task.rows(outputs[:1], targets[:1])
    except Exception:  # of a batch of one it may fail as long as none is evaluated
        return
    if alone.shape[1] != rows.shape[1]:
        raise ValueError(
            f"observe must give as many numbers an example in every batch, got {rows.shape[1]} of each of {len(rows)} "
            f"and {alone.shape[1]} of one alone: outputs of shape {tuple(outputs.shape)} and targets of shape "
            f"{tuple(targets.shape)} are paired all with all (a broadcast)"
        )


def pairing_cautions(task: Task, outputs: Tensor, targets: Tensor) -> list[str]:
    """A line where a user's own loss does not look at which target is of which output, or is a sum.

    Args:
        task: The task.
        outputs: Of a model, for several examples.
        targets: Theirs.
    """
    try:
        with torch.no_grad():
            of_all, moved = float(task.loss(outputs, targets)), float(task.loss(outputs, targets.roll(1, 0)))
            twice = float(task.loss(torch.cat([outputs, outputs]), torch.cat([targets, targets])))
    except Exception:  # what is wrong with the task is told where it is tried
        return []
    shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
    if bool((outputs != outputs[:1]).any()) and bool((targets != targets[:1]).any()) and _near(of_all, moved):
        return [
            f"the loss stays the same when the targets of {len(targets)} examples change places: {shapes} are paired "
            "all with all (a broadcast), or targets are not used"
        ]
    if of_all and _near(twice, 2.0 * of_all):
        return [
            "the loss of a batch twice over is twice that of the batch: it must be the mean over the examples, not "
            "their sum, which makes steps larger with local.batch_size"
        ]
    return []


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)
