"""What a model is trained for: its loss, what it is measured by, and which outputs it must give."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

Share = Annotated[float, Field(ge=0, lt=1)]

Kind = Literal["classes", "marks", "numbers", "maps", "tokens", "any"]
"""Which targets a task wants of data that lie in files; see ``fedfibos.data.forms.targets``."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) of a batch -> its mean loss, a scalar. Of a batch of one: the loss of that example."""

NAME = re.compile(r"[A-Za-z][\w.\- ]*")

TAKEN = (
    *("global", "local", "metrics", "majority_share", "jaccard", "kept_shares", "shares", "cv_f", "cv_magnitude"),
    *("method", "seed", "round", "rounds", "loss", "params_sha256", "bytes", "seconds", "rejected", "silent"),
    *("epsilon", "delta"),
    *("rejected_classes", "participants", "evaluation"),
)
"""Keys of a record that no metric may have."""


@dataclass(frozen=True)
class Metric:
    """One number that a model is measured by, over any set of examples.

    Attributes:
        name: Letters, digits and underscores; the key of a record.
        better: Which way is better.
        value: What the rows that the task's ``observe`` gave for the examples come to: float64, shape ``(n, k)``, n at
            least 1. A value that is not finite is no number and is left out of means.
        share: Whether it is a share in [0, 1], shown in %.
    """

    name: str
    better: Literal["higher", "lower"]
    value: Callable[[Tensor], float | Tensor]
    share: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or NAME.fullmatch(self.name) is None or self.name in TAKEN:
            raise ValueError(f"a metric's name must be letters, digits and underscores, got {self.name!r}")
        if self.better not in ("higher", "lower"):
            raise ValueError(f"better of metric {self.name!r} must be 'higher' or 'lower', got {self.better!r}")

    def of(self, seen: Tensor) -> float | None:
        """Its value over some examples; None where there is none, or it is not finite.

        Args:
            seen: What they left, shape ``(n, k)``.
        """
        value = float(self.value(seen.double())) if len(seen) else math.nan
        return value if math.isfinite(value) else None

    @property
    def described(self) -> dict[str, Any]:
        """As a record has it."""
        return {"better": self.better, "share": self.share}


def check_shape(what: str, outputs: object, wanted: tuple[int, ...], said: str) -> None:
    """Raise ValueError unless the outputs of a batch are real numbers of a shape.

    Args:
        what: What they are called.
        outputs: Anything.
        wanted: The shape, the examples first.
        said: What the numbers are, in a few words.
    """
    got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if got != wanted:
        raise ValueError(f"it must map {wanted[0]} examples to {what} of shape {wanted}, {said}, got {got}")
    if isinstance(outputs, Tensor) and not outputs.is_floating_point():
        raise ValueError(f"{what} must be of a floating-point type, got {outputs.dtype}")


def check_weights(key: str, weights: Sequence[float], classes: Sequence[str]) -> None:
    """Raise ValueError unless weights are none, or a finite number above 0 for every class."""
    if weights and len(weights) != len(classes):
        raise ValueError(f"{key} must be {len(classes)} numbers, one a class, got {len(weights)}")
    for weight in weights:
        if not 0 < weight < math.inf:
            raise ValueError(f"{key} must be numbers above 0, got {weight:g}")


def anything(outputs: object, targets: Tensor) -> None:
    """No demand on outputs but that they are one tensor, a row an example."""
    if not isinstance(outputs, Tensor) or outputs.dim() == 0 or len(outputs) != len(targets):
        got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"it must map {len(targets)} examples to a tensor of {len(targets)} rows, got {got}")


def any_targets(targets: Tensor) -> None:
    """No demand on targets."""


@dataclass(frozen=True)
class Task:
    """What a model is trained for, and how it is measured.

    Evaluation is streamed: outputs are not kept. Every example leaves one row of numbers (``observe``), and metrics are
    made of the rows: of the whole test set, and of each client's own examples.

    Attributes:
        loss: (outputs, targets) of a batch -> its mean loss, a scalar; of a batch of one that example's own loss, which
            Fisher estimates per example take.
        observe: (outputs, targets) of a batch, on the CPU -> what each example leaves behind; any numbers, shape
            ``(b,)`` or ``(b, k)``. They are kept in float32.
        metrics: The first one is what ``global`` and ``local`` are; the others are measured on the whole test set.
        check: Raises ValueError, in one line, for (outputs, targets) of a batch which the model must not give.
        check_targets: Raises ValueError for targets of a data set that the task cannot have.
        outputs: How many outputs the model is to have, which it is built with as ``num_classes``; None: as many as
            there are classes.
        classes: Whether targets are classes, int64 of shape ``(n,)``, and outputs their scores, shape ``(n, C)``: what
            is done class by class (``absent_labels``, partitions by class, adjusted accuracies) needs that.
        distance: (outputs, teacher's outputs, temperature) -> how far apart they are, a scalar: for ``local.distill``.
            None: there is none.
        signed: Whether the loss may be below 0; a client's that is, is rejected otherwise.
        name: As an experiment names it.
        gives: What the outputs are called in an exported file: ``logits`` where they are scores.
    """

    loss: Loss
    observe: Callable[[Tensor, Tensor], Tensor]
    metrics: tuple[Metric, ...]
    check: Callable[[Any, Tensor], None] = anything
    check_targets: Callable[[Tensor], None] = any_targets
    outputs: int | None = None
    classes: bool = False
    distance: Callable[[Tensor, Tensor, float], Tensor] | None = None
    signed: bool = False
    name: str = ""
    gives: str = "outputs"

    def __post_init__(self) -> None:
        metrics = tuple(self.metrics)
        if not metrics or not all(isinstance(metric, Metric) for metric in metrics):
            raise ValueError(f"metrics of a task must be Metrics, at least one, got {self.metrics!r}")
        names = [metric.name for metric in metrics]
        if len(set(names)) < len(names):
            raise ValueError(f"metrics of a task must have different names, got {', '.join(names)}")
        object.__setattr__(self, "metrics", metrics)
        if not isinstance(self.gives, str) or not self.gives.isidentifier():
            raise ValueError(f"gives must be a name for the outputs, letters and underscores, got {self.gives!r}")

    @property
    def primary(self) -> Metric:
        """The metric that comes first."""
        return self.metrics[0]

    @property
    def described(self) -> dict[str, dict[str, Any]]:
        """Every metric as a record has it, the first one first."""
        return {metric.name: metric.described for metric in self.metrics}

    def rows(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What the examples of a batch leave behind; float32, shape ``(b, k)``.

        Raises:
            ValueError: ``observe`` gives no row an example.
        """
        seen = self.observe(outputs, targets)
        if not isinstance(seen, Tensor) or seen.dim() not in (1, 2) or len(seen) != len(targets):
            got = f"shape {tuple(seen.shape)}" if isinstance(seen, Tensor) else type(seen).__name__
            raise ValueError(f"observe of a task must give a row an example, {len(targets)} in all, got {got}")
        return seen.to(torch.float32).view(len(seen), -1)
