"""What an accuracy hides where one class has most examples: balanced accuracy, macro F1, the majority's share.

Defined over the classes that the test set has examples of (docs/explanation/notation.md).
"""

from __future__ import annotations

import torch
from torch import Tensor


def balanced_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """The mean over classes of the share of a class's examples that are classified as it.

    Args:
        predicted: Class of every example, any integer type, shape ``(n,)``; −1 for none.
        labels: The true ones.

    Example:
        >>> balanced_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
        0.5
    """
    right, examples, _ = _counts(predicted, labels)
    return float((right / examples).mean())


def macro_f1(predicted: Tensor, labels: Tensor) -> float:
    """The mean over classes of F1 = 2·right / (examples of the class + examples classified as it).

    Example:
        >>> macro_f1(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]))
        0.7333333333333334
    """
    right, examples, given = _counts(predicted, labels)
    return float((2 * right / (examples + given)).mean())


def majority_share(labels: Tensor) -> float:
    """Share of the largest class: the accuracy of always answering it."""
    return int(labels.bincount().max()) / len(labels)


def _counts(predicted: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of every class with an example: how many are right, how many it has, how many are classified as it; float64."""
    classes, index = labels.unique(return_inverse=True)
    right = torch.zeros(len(classes), dtype=torch.float64).index_add_(0, index, (predicted == labels).double())
    known = predicted[predicted >= 0].long()
    given = known.bincount(minlength=int(classes.max()) + 1)[classes].double()
    return right, index.bincount().double(), given
