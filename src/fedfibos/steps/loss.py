"""The loss of a local step: cross-entropy, what it makes of classes that a client lacks, and distillation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from fedfibos.model import Model
from fedfibos.params import Layout
from fedfibos.submodel import Submodel
from fedfibos.training import LocalTraining

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, labels) -> mean loss."""


def loss_of(local: LocalTraining, labels: Tensor, device: torch.device) -> Loss:
    """The loss of a client with those labels.

    Args:
        local: Says what becomes of classes that it lacks.
        labels: Of all its examples.
        device: Where it trains.
    """
    if local.absent_labels == "mask":
        return partial(cross_entropy_loss, present=labels.unique().to(device))
    if local.absent_labels == "adjust":
        return partial(adjusted_loss, counts=torch.bincount(labels).to(device), tau=local.adjust_tau)
    return partial(cross_entropy_loss, present=None)


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


def cross_entropy_loss(logits: Tensor, labels: Tensor, *, present: Tensor | None) -> Tensor:
    """Cross-entropy; with ``present`` the other classes' logits are 0 (they stay in the denominator)."""
    if present is not None:
        # not keep[present] = 1.0, which copies the value to a GPU and waits: no recording allows it
        keep = torch.zeros(logits.shape[1], device=logits.device).index_fill_(0, present.to(logits.device), 1.0)
        logits = logits * keep
    return cross_entropy(logits.float(), labels)


def adjusted_loss(logits: Tensor, labels: Tensor, *, counts: Tensor, tau: float) -> Tensor:
    """Cross-entropy of logits + τ·log π (Menon et al. 2021, equation 10; Zhang et al. 2022, FedLC).

    π_c = (n_c + 1) / (n + C): the client's class frequencies, smoothed so that a class without an example is rare and
    not impossible. What a class's frequency explains, the weights need not learn.

    Args:
        logits: Shape ``(b, C)``.
        labels: int64, shape ``(b,)``.
        counts: Examples of each class up to the largest label, int64.
        tau: τ; 0 is plain cross-entropy.
    """
    smoothed = torch.ones(logits.shape[1], device=logits.device)
    smoothed[: counts.numel()] += counts
    return cross_entropy(logits.float() + tau * torch.log(smoothed / smoothed.sum()), labels)


def distillation(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T²·KL(teacher ‖ student) of the softened outputs, mean over examples (Hinton et al. 2015).

    Args:
        logits: The smaller member's, shape ``(b, C)``.
        teacher: The larger one's, held constant.
        temperature: T.
    """
    student = torch.log_softmax(logits.float() / temperature, 1)
    wanted = torch.log_softmax(teacher.float() / temperature, 1)
    return temperature**2 * kl_div(student, wanted, reduction="batchmean", log_target=True)
