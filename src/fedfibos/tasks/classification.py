"""One class an example: cross-entropy of the scores, and how often the largest is the right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from fedfibos.common.extras import extra
from fedfibos.tasks.class_scores import balanced_accuracy, macro_f1
from fedfibos.tasks.task import Kind, Metric, Share, Task, check_shape, check_weights


@dataclass(frozen=True)
class Classification:
    """One of several classes an example: cross-entropy of one score a class.

    Attributes:
        class_weights: Weight of every class's examples in the loss, one number a class, in the order of the data set's
            classes; empty: all are 1. A batch's loss is the mean of its examples' weighted ones.
        label_smoothing: Share of the target that is spread over all classes, in [0, 1).
        auc: Whether the area under the curve is measured too: the mean over classes, each against the rest. Keeps every
            test example's scores.
        per_class: Whether every class's share of right answers is measured too.
    """

    class_weights: tuple[float, ...] = ()
    label_smoothing: Share = 0.0
    auc: bool = False
    per_class: bool = False

    needs_classes: ClassVar[bool] = True
    targets: ClassVar[Kind] = "classes"

    def task(self, targets: Tensor, classes: tuple[str, ...]) -> Task:
        """The task on a data set.

        Args:
            targets: Its training labels.
            classes: Names of its classes.
        """
        check_weights("task.class_weights", self.class_weights, classes)
        loss = cross_entropies
        if self.class_weights or self.label_smoothing:
            loss = partial(weighted_cross_entropies, weights=self.class_weights, smoothing=self.label_smoothing)
        metrics: tuple[Metric, ...] = METRICS
        if self.auc:
            metrics = (*metrics, Metric("auc", "higher", area_under_curve, share=True))
        if self.per_class:
            each = (
                Metric(f"accuracy {c}", "higher", partial(share_of_class, n), share=True) for n, c in named(classes)
            )
            metrics = (*metrics, *each)
        return Task(
            loss,
            decisions_and_scores if self.auc else decisions,
            metrics,
            check=partial(check_scores, len(classes)),
            check_targets=partial(check_classes, len(classes)),
            outputs=len(classes),
            classes=True,
            distance=softened,
            name="classification",
            gives="logits",
        )


def named(classes: tuple[str, ...]) -> list[tuple[int, str]]:
    """Every class's number and its name as a metric may have it."""
    return [
        (n, "".join(c if c.isalnum() or c in "_.-" else " " for c in name).strip()) for n, name in enumerate(classes)
    ]


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of a batch, in float32."""
    return cross_entropy(logits.float(), labels)


def weighted_cross_entropies(logits: Tensor, labels: Tensor, *, weights: tuple[float, ...], smoothing: float) -> Tensor:
    """Mean over a batch's examples of their class's weight times their smoothed cross-entropy.

    Not torch's weighted mean, which divides by the sum of the batch's weights: a batch of one would lose its weight.
    """
    losses = cross_entropy(logits.float(), labels, label_smoothing=smoothing, reduction="none")
    if weights:
        losses = losses * torch.tensor(weights, device=logits.device)[labels]
    return losses.mean()


def decisions(logits: Tensor, labels: Tensor) -> Tensor:
    """The class of each example's largest score, −1 where it is not finite, and the true one; shape ``(b, 2)``."""
    return torch.stack([torch.where(sound(logits), logits.argmax(1), -1), labels], 1)


def decisions_and_scores(logits: Tensor, labels: Tensor) -> Tensor:
    """The same, followed by the probability of every class; shape ``(b, 2 + C)``."""
    return torch.cat([decisions(logits, labels).float(), logits.float().softmax(1)], 1)


def sound(logits: Tensor) -> Tensor:
    """Where the largest logit is a number: without one argmax would make the first class. -∞ rules classes out."""
    return logits.amax(1).isfinite()


def is_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether each example's largest logit is its label's; bool, shape ``(n,)``."""
    return (logits.argmax(1) == labels) & sound(logits)


def share_right(seen: Tensor) -> float:
    """Share of the examples whose class is the true one."""
    return int((seen[:, 0] == seen[:, 1]).sum()) / len(seen)


def share_of_class(number: int, seen: Tensor) -> float:
    """Share of a class's examples that are classified as it; nan without any."""
    own = seen[seen[:, 1] == number]
    return share_right(own) if len(own) else float("nan")


def of_classes(score: Callable[[Tensor, Tensor], float], seen: Tensor) -> float:
    """A score of predicted and true classes."""
    return score(seen[:, 0].long(), seen[:, 1].long())


def area_under_curve(seen: Tensor) -> Tensor | float:
    """Mean over the classes with examples of the area under each one's curve against the rest; nan of one class."""
    with extra("metrics"):
        from torchmetrics.functional.classification import binary_auroc

    labels, scores = seen[:, 1].long(), seen[:, 2:].nan_to_num()
    present = [n for n in labels.unique().tolist() if 0 < int((labels == n).sum()) < len(labels)]
    if not present:
        return float("nan")
    return torch.stack([binary_auroc(scores[:, n].float(), (labels == n).long()) for n in present]).mean()


def softened(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T²·KL(teacher ‖ student) of the softened outputs, mean over examples (Hinton et al. 2015).

    Args:
        logits: The smaller member's, shape ``(b, C)``.
        teacher: The larger one's, held constant.
        temperature: T.
    """
    student = torch.log_softmax(logits.float() / temperature, 1)
    wanted = torch.log_softmax(teacher.float() / temperature, 1)
    return temperature**2 * kl_div(student, wanted, reduction="batchmean", log_target=True)


def check_scores(num_classes: int, logits: object, labels: Tensor) -> None:
    """Raise ValueError unless outputs are one score a class of every example, real numbers."""
    check_shape("logits", logits, (len(labels), num_classes), "one a class")


def check_classes(num_classes: int, labels: Tensor) -> None:
    """Raise ValueError unless targets are classes."""
    if labels.dtype != torch.int64 or labels.dim() != 1:
        raise ValueError(f"labels must be int64 of shape (n,), got {labels.dtype} of shape {tuple(labels.shape)}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"labels must be in 0..{num_classes - 1}, got {low if low < 0 else high}")


METRICS = (
    Metric("accuracy", "higher", share_right, share=True),
    Metric("balanced_accuracy", "higher", partial(of_classes, balanced_accuracy), share=True),
    Metric("macro_f1", "higher", partial(of_classes, macro_f1), share=True),
)

CLASSIFICATION = Task(
    cross_entropies, decisions, METRICS, classes=True, distance=softened, name="classification", gives="logits"
)
"""Of any number of classes, every class alike: what a model is trained for where nothing else is said."""
