"""A class for every pixel: cross-entropy or Dice, and how far predicted and true regions overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedfibos.tasks.classification import named
from fedfibos.tasks.task import Kind, Metric, Task, check_shape, check_weights


@dataclass(frozen=True)
class Segmentation:
    """A class for every pixel: cross-entropy or Dice of one map of scores a class, shape ``(n, C, height, width)``.

    Attributes:
        loss: ``cross-entropy`` (mean over the pixels), ``dice`` (1 − the mean overlap of classes, image by image), or
            ``both``, their sum.
        class_weights: Weight of every class's pixels in the cross-entropy, one number a class; empty: all are 1.
        ignore: The target of pixels that are of no class and count nowhere.
        per_class: Whether every class's intersection over union is measured too.
    """

    loss: Literal["cross-entropy", "dice", "both"] = "cross-entropy"
    class_weights: tuple[float, ...] = ()
    ignore: int = -100
    per_class: bool = False

    needs_classes: ClassVar[bool] = True
    targets: ClassVar[Kind] = "maps"

    def task(self, targets: Tensor, classes: tuple[str, ...]) -> Task:
        """The task on a data set; see :meth:`fedfibos.tasks.classification.Classification.task`."""
        check_weights("task.class_weights", self.class_weights, classes)
        number = len(classes)
        if 0 <= self.ignore < number:
            raise ValueError(f"task.ignore must be none of the classes 0..{number - 1}, got {self.ignore}")
        metrics = [
            Metric("miou", "higher", partial(mean_overlap, number), share=True),
            Metric("pixel_accuracy", "higher", partial(right_pixels, number), share=True),
        ]
        if self.per_class:
            metrics += [
                Metric(f"iou {c}", "higher", partial(overlap, number, n), share=True) for n, c in named(classes)
            ]
        return Task(
            partial(pixel_loss, kind=self.loss, weights=self.class_weights, ignore=self.ignore),
            partial(confusion, number=number, ignore=self.ignore),
            tuple(metrics),
            check=partial(check_maps, number),
            check_targets=partial(check_pixels, number, self.ignore),
            outputs=number,
            distance=softened_pixels,
            name="segmentation",
            gives="logits",
        )


def pixel_loss(logits: Tensor, targets: Tensor, *, kind: str, weights: tuple[float, ...], ignore: int) -> Tensor:
    """The loss of a batch of maps."""
    logits = logits.float()
    if kind == "dice":
        return dice(logits, targets, ignore)
    losses = cross_entropy(logits, targets, ignore_index=ignore, reduction="none")
    known = targets != ignore
    if weights:
        losses = losses * torch.tensor(weights, device=logits.device)[torch.where(known, targets, 0)]
    mean = losses.sum() / known.sum().clamp_min(1)
    return mean + dice(logits, targets, ignore) if kind == "both" else mean


def dice(logits: Tensor, targets: Tensor, ignore: int) -> Tensor:
    """1 − mean over images and classes of 2·Σpt / (Σp + Σt), one added above and below."""
    known = (targets != ignore).unsqueeze(1)
    likely = logits.softmax(1) * known
    places = torch.arange(logits.shape[1], device=logits.device).view(1, -1, *[1] * (targets.dim() - 1))
    true = (targets.unsqueeze(1) == places).to(likely.dtype)
    shared, both = (likely * true).flatten(2).sum(2), (likely + true).flatten(2).sum(2)
    return 1 - ((2 * shared + 1) / (both + 1)).mean()


def confusion(logits: Tensor, targets: Tensor, *, number: int, ignore: int) -> Tensor:
    """Pixels of every image by true and predicted class, those that are ignored left out; shape ``(b, C·C)``."""
    predicted, true = logits.argmax(1).flatten(1), targets.flatten(1)
    images = torch.arange(len(true))[:, None].expand_as(true)
    known = true != ignore
    places = (images * number + true) * number + predicted
    return torch.bincount(places[known], minlength=len(true) * number * number).view(len(true), -1)


def _overlaps(number: int, seen: Tensor) -> Tensor:
    """Intersection over union of every class; nan of one that is neither there nor predicted."""
    table = seen.sum(0).view(number, number)
    shared = table.diagonal()
    return shared / (table.sum(0) + table.sum(1) - shared)


def mean_overlap(number: int, seen: Tensor) -> Tensor:
    """Mean over the classes that are there or predicted of intersection over union."""
    return _overlaps(number, seen).nanmean()


def overlap(number: int, label: int, seen: Tensor) -> Tensor:
    """Intersection over union of one class."""
    return _overlaps(number, seen)[label]


def right_pixels(number: int, seen: Tensor) -> Tensor:
    """Share of the pixels whose class is the true one."""
    table = seen.sum(0).view(number, number)
    return table.diagonal().sum() / table.sum()


def softened_pixels(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T²·KL of the softened outputs, mean over pixels."""
    student, wanted = ((of.float() / temperature).log_softmax(1) for of in (logits, teacher))
    return temperature**2 * (wanted.exp() * (wanted - student)).sum(1).mean()


def check_maps(number: int, logits: object, targets: Tensor) -> None:
    """Raise ValueError unless outputs are a map of scores a class, as large as the targets."""
    said = f"one a class of targets of shape {tuple(targets.shape[1:])}"
    check_shape("maps of scores", logits, (len(targets), number, *targets.shape[1:]), said)


def check_pixels(number: int, ignore: int, targets: Tensor) -> None:
    """Raise ValueError unless targets are a class for every pixel."""
    if targets.dtype != torch.int64 or targets.dim() < 2:
        got = f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise ValueError(f"targets must be int64 of shape (n, height, width), a class for every pixel, got {got}")
    wrong = targets[((targets < 0) | (targets >= number)) & (targets != ignore)]
    if len(wrong):
        raise ValueError(f"targets must be in 0..{number - 1}, or {ignore} (task.ignore), got {int(wrong[0])}")
    if bool((targets == ignore).all()):
        raise ValueError(f"targets must have a pixel that is not {ignore} (task.ignore), got none")
