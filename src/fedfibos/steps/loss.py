"""The loss of a local step: the task's, and what becomes of the scores of classes that a client lacks."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fedfibos.model import Model
from fedfibos.params import Layout
from fedfibos.submodel import Submodel
from fedfibos.tasks.task import Loss, Task
from fedfibos.training import LocalTraining


def loss_of(task: Task, local: LocalTraining, labels: Tensor, device: torch.device) -> Loss:
    """The loss of a client with those targets.

    Args:
        task: What is learnt.
        local: Says what becomes of classes that it lacks.
        labels: Targets of all its examples.
        device: Where it trains.

    Raises:
        ValueError: The setting does not apply to the task.
    """
    check_local(task, local)
    if local.absent_labels == "mask":
        return partial(masked_loss, loss=task.loss, present=labels.unique().to(device))
    if local.absent_labels == "adjust":
        counts = torch.bincount(labels).to(device)
        return partial(adjusted_loss, loss=task.loss, counts=counts, tau=local.adjust_tau)
    return task.loss


def check_local(task: Task, local: LocalTraining) -> None:
    """Raise ValueError, in one line, for a setting of local training that a task has no use for."""
    if local.absent_labels != "keep" and not task.classes:
        raise ValueError(
            f"local.absent_labels = {local.absent_labels!r} is about classes that a client has no example of, the "
            f"targets of task {task.name!r} are no classes: leave it at 'keep'"
        )
    if local.distill and task.distance is None:
        raise ValueError(
            f"local.distill = {local.distill:g} draws outputs to others, task {task.name!r} has no distance between "
            "them: set it to 0, or give the task a distance"
        )


def counted_of(submodel: Submodel, model: Model, layout: Layout, local: LocalTraining, labels: Tensor) -> Tensor | None:
    """What the client counts as a holder of: all it holds, but with ``mask`` the rows of classes that it lacks."""
    if local.absent_labels != "mask":
        return None
    counted = without_absent_classes(model, layout, labels).to(model.device)
    return counted if submodel.held is None else counted & submodel.held


def without_absent_classes(model: Model, layout: Layout, labels: Tensor) -> Tensor:
    """bool, shape ``(layout.size,)``: False on the classifier's entries of classes without an example.

    Args:
        model: Knows which dimensions are classes (from its axes).
        layout: The full layout, or that of a slice.
        labels: Classes of the client's examples.

    Raises:
        ValueError: The model's table of axes names no classes.
    """
    if not model.axes.classes:
        raise ValueError(
            "absent_labels = 'mask' needs the classifier's class rows, got a table of axes without classes"
        )
    held = torch.ones(layout.size, dtype=torch.bool)
    present = labels.unique().cpu()
    for name, view in zip(layout.names, layout.views(held), strict=True):
        if (dim := model.axes.classes.get(name)) is not None:
            absent = torch.ones(view.shape[dim], dtype=torch.bool)
            absent[present] = False
            view.index_fill_(dim, absent.nonzero().squeeze(1), False)
    return held


def masked_loss(logits: Tensor, labels: Tensor, *, loss: Loss, present: Tensor) -> Tensor:
    """The loss with the logits of all classes but ``present`` at 0 (they stay in the denominator)."""
    # not keep[present] = 1.0, which copies the value to a GPU and waits: no recording allows it
    keep = torch.zeros(logits.shape[1], device=logits.device).index_fill_(0, present.to(logits.device), 1.0)
    return loss(logits * keep, labels)


def adjusted_loss(logits: Tensor, labels: Tensor, *, loss: Loss, counts: Tensor, tau: float) -> Tensor:
    """The loss of logits + τ·log π (Menon et al. 2021, equation 10; Zhang et al. 2022, FedLC).

    π_c = (n_c + 1) / (n + C): the client's class frequencies, smoothed so that a class without an example is rare and
    not impossible. What a class's frequency explains, the weights need not learn.

    Args:
        logits: Shape ``(b, C)``.
        labels: int64, shape ``(b,)``.
        loss: Of the adjusted logits.
        counts: Examples of each class up to the largest label, int64.
        tau: τ; 0 is the plain loss.
    """
    smoothed = torch.ones(logits.shape[1], device=logits.device)
    smoothed[: counts.numel()] += counts
    return loss(logits.float() + tau * torch.log(smoothed / smoothed.sum()), labels)
