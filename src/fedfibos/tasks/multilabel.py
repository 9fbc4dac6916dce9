"""Any number of labels an example: binary cross-entropy of one score a label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from fedfibos.common.extras import extra
from fedfibos.tasks.classification import named
from fedfibos.tasks.task import Kind, Metric, Task, check_shape, check_weights


@dataclass(frozen=True)
class MultiLabel:
    """Any of several labels an example, each there or not: binary cross-entropy of one score a label, their mean.

    Attributes:
        positive_weights: Weight of the examples that have a label in its loss, one number a label; empty: all are 1.
        threshold: Probability from which on a label counts as predicted.
        auc: Whether the mean area under the labels' curves is measured too. Keeps every test example's scores.
        per_class: Whether every label's F1 is measured too.
    """

    positive_weights: tuple[float, ...] = ()
    threshold: float = 0.5
    auc: bool = False
    per_class: bool = False

    needs_classes: ClassVar[bool] = True
    targets: ClassVar[Kind] = "marks"

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold < 1.0:
            raise ValueError(f"threshold must be in (0, 1), got {self.threshold:g}")

    def task(self, targets: Tensor, classes: tuple[str, ...]) -> Task:
        """The task on a data set; see :meth:`fedfibos.tasks.classification.Classification.task`."""
        check_weights("task.positive_weights", self.positive_weights, classes)
        number = len(classes)
        metrics = [
            Metric("macro_f1", "higher", partial(mean_f1, number), share=True),
            Metric("micro_f1", "higher", partial(pooled_f1, number), share=True),
            Metric("exact_match", "higher", partial(exact, number), share=True),
        ]
        if self.auc:
            metrics.append(Metric("auc", "higher", partial(area_under_curves, number), share=True))
        if self.per_class:
            metrics += [Metric(f"f1 {c}", "higher", partial(f1_of, number, n), share=True) for n, c in named(classes)]
        return Task(
            partial(binary_cross_entropies, weights=self.positive_weights),
            partial(answers_and_truth, threshold=self.threshold, scores=self.auc),
            tuple(metrics),
            check=partial(check_scores, number),
            check_targets=partial(check_labels, number),
            outputs=number,
            distance=apart,
            name="multilabel",
            gives="logits",
        )


def binary_cross_entropies(logits: Tensor, labels: Tensor, *, weights: tuple[float, ...]) -> Tensor:
    """Mean over examples and labels."""
    more = torch.tensor(weights, device=logits.device) if weights else None
    return binary_cross_entropy_with_logits(logits.float(), labels.float(), pos_weight=more)


def answers_and_truth(logits: Tensor, labels: Tensor, *, threshold: float, scores: bool) -> Tensor:
    """Which labels are predicted and which are true, and where asked for the probabilities; shape ``(b, 2C or 3C)``."""
    likely = logits.float().sigmoid()
    return torch.cat([(likely >= threshold).float(), labels.float(), *([likely] if scores else [])], 1)


def _counts(number: int, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Of every label: twice the right positives, and predicted and true ones together."""
    predicted, true = seen[:, :number], seen[:, number : 2 * number]
    return 2 * (predicted * true).sum(0), predicted.sum(0) + true.sum(0)


def mean_f1(number: int, seen: Tensor) -> Tensor:
    """Mean of F1 over the labels that are true or predicted somewhere."""
    right, given = _counts(number, seen)
    return (right / given)[given > 0].mean()


def pooled_f1(number: int, seen: Tensor) -> Tensor:
    """F1 of all labels together."""
    right, given = _counts(number, seen)
    return right.sum() / given.sum()


def f1_of(number: int, label: int, seen: Tensor) -> Tensor:
    """F1 of one label; nan where it is never true nor predicted."""
    right, given = _counts(number, seen)
    return right[label] / given[label]


def exact(number: int, seen: Tensor) -> Tensor:
    """Share of the examples whose labels are all right."""
    return (seen[:, :number] == seen[:, number : 2 * number]).all(1).double().mean()


def area_under_curves(number: int, seen: Tensor) -> Tensor | float:
    """Mean over the labels that some examples have and others have not."""
    with extra("metrics"):
        from torchmetrics.functional.classification import binary_auroc

    true, likely = seen[:, number : 2 * number].long(), seen[:, 2 * number :].nan_to_num()
    both = [n for n in range(number) if 0 < int(true[:, n].sum()) < len(seen)]
    if not both:
        return float("nan")
    return torch.stack([binary_auroc(likely[:, n].float(), true[:, n]) for n in both]).mean()


def apart(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T²·KL between the labels' softened probabilities, mean over examples and labels."""
    mine, theirs = logits.float() / temperature, teacher.float() / temperature
    likely = theirs.sigmoid()
    there = likely * (logsigmoid(theirs) - logsigmoid(mine))
    not_there = (1 - likely) * (logsigmoid(-theirs) - logsigmoid(-mine))
    return temperature**2 * (there + not_there).mean()


def check_scores(number: int, logits: object, labels: Tensor) -> None:
    """Raise ValueError unless outputs are one score a label of every example."""
    check_shape("scores", logits, (len(labels), number), "one a label")


def check_labels(number: int, labels: Tensor) -> None:
    """Raise ValueError unless targets are 0 or 1 for every label."""
    if labels.dim() != 2 or labels.shape[1] != number or labels.is_complex():
        wanted = f"of shape (n, {number}), 1 or 0 for each of the data set's classes"
        raise ValueError(f"labels must be {wanted}, got {labels.dtype} of shape {tuple(labels.shape)}")
    if not bool(((labels == 0) | (labels == 1)).all()):
        wrong = labels[(labels != 0) & (labels != 1)]
        raise ValueError(f"labels must be 0 or 1, got {float(wrong[0]):g}")
