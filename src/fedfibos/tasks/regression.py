"""Numbers to be predicted: squared, absolute or Huber's error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import huber_loss, l1_loss, mse_loss

from fedfibos.tasks.task import Kind, Metric, Task, check_shape


@dataclass(frozen=True)
class Regression:
    """One number an example, or several: the mean error over examples and numbers.

    Attributes:
        loss: ``mse`` (squares), ``mae`` (absolute values) or ``huber`` (squares up to ``delta``, beyond it absolute
            values).
        delta: Where ``huber`` changes from squares to absolute values.
    """

    loss: Literal["mse", "mae", "huber"] = "mse"
    delta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    needs_classes: ClassVar[bool] = False
    targets: ClassVar[Kind] = "numbers"

    def task(self, targets: Tensor, classes: tuple[str, ...]) -> Task:
        """The task on a data set; see :meth:`fedfibos.tasks.classification.Classification.task`."""
        number = targets.shape[1] if targets.dim() == 2 else 1
        return Task(
            partial(errors, kind=self.loss, delta=self.delta),
            values_and_truth,
            (
                Metric("mse", "lower", squared),
                Metric("mae", "lower", absolute),
                Metric("r2", "higher", explained),
            ),
            check=partial(check_values, number),
            check_targets=partial(check_numbers, number),
            outputs=number,
            distance=squares_apart,
            name="regression",
            gives="values",
        )


def errors(values: Tensor, targets: Tensor, *, kind: str, delta: float) -> Tensor:
    """Mean over examples and numbers."""
    wanted = targets.float().view(values.shape)
    if kind == "huber":
        return huber_loss(values.float(), wanted, delta=delta)
    return mse_loss(values.float(), wanted) if kind == "mse" else l1_loss(values.float(), wanted)


def values_and_truth(values: Tensor, targets: Tensor) -> Tensor:
    """Predicted and true numbers; shape ``(b, 2k)``."""
    return torch.cat([values.float().reshape(len(targets), -1), targets.float().reshape(len(targets), -1)], 1)


def _both(seen: Tensor) -> tuple[Tensor, Tensor]:
    half = seen.shape[1] // 2
    return seen[:, :half], seen[:, half:]


def squared(seen: Tensor) -> Tensor:
    """Mean squared error."""
    values, targets = _both(seen)
    return (values - targets).square().mean()


def absolute(seen: Tensor) -> Tensor:
    """Mean absolute error."""
    values, targets = _both(seen)
    return (values - targets).abs().mean()


def explained(seen: Tensor) -> Tensor:
    """R², the mean over the numbers: 1 − the squares that are left / those around the mean; not finite without any."""
    values, targets = _both(seen)
    around = (targets - targets.mean(0)).square().sum(0)
    return (1 - (values - targets).square().sum(0) / around).mean()


def squares_apart(values: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Mean squared difference; there is nothing to soften."""
    return mse_loss(values.float(), teacher.float())


def check_values(number: int, values: object, targets: Tensor) -> None:
    """Raise ValueError unless outputs are as many numbers an example as its target has."""
    flat = isinstance(values, Tensor) and number == 1 and values.dim() == 1
    check_shape("values", values, (len(targets),) if flat else (len(targets), number), "as its target has")


def check_numbers(number: int, targets: Tensor) -> None:
    """Raise ValueError unless targets are finite numbers, one or a row of them an example, as many as in training."""
    got = f"{targets.dtype} of shape {tuple(targets.shape)}"
    if targets.dim() not in (1, 2) or targets.is_complex():
        raise ValueError(f"targets must be numbers of shape (n,) or (n, k), got {got}")
    if targets.is_floating_point() and not bool(targets.isfinite().all()):
        bad = int((~targets.isfinite()).reshape(len(targets), -1).any(1).sum())
        raise ValueError(f"targets must be finite, got {bad} of {len(targets)} examples with one that is not")
    if (targets.shape[1] if targets.dim() == 2 else 1) != number:
        raise ValueError(f"targets must be {number} numbers an example, as the training examples have, got {got}")
