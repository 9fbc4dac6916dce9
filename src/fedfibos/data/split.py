"""What a loader gives: the official train and test split of a data set, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.common.user_code import UserCodeError, describe_error
from fedfibos.data.images import ImageData, TensorData, check_labels, check_targets
from fedfibos.types import Dataset


@dataclass(frozen=True)
class Split:
    """A data set with its test split.

    Attributes:
        train: Training examples.
        test: Test examples, never trained on.
        classes: Name of every class; a label is a position here. Empty where targets are no classes.
        name: The data set's name, as given to ``load``.
        owners: int64, one a training example: whose it is, any numbers; None where the data set does not say.
        test_owners: int64, one a test example: whose it is, in the numbers of ``owners``; None where the data set does
            not say. In a ``natural`` partition each client's local accuracy is then over its own test examples.

    Raises:
        ValueError: A split without examples, labels (of one dimension, with classes) that are not int64 or no positions
            in ``classes``, not an owner an example, or owners of test examples alone.
    """

    train: Dataset
    test: Dataset
    classes: tuple[str, ...] = ()
    name: str = ""
    owners: Tensor | None = None
    test_owners: Tensor | None = None

    @property
    def _said(self) -> str:
        """What messages call it: a user's own has no name before it is loaded by one."""
        return f"data set {self.name!r}" if self.name else "the data set"

    def _check_classes(self) -> None:
        wanted = f"{self._said}: classes must be the names of the classes, got"
        if isinstance(self.classes, str) or not isinstance(self.classes, Sequence):
            got = self.classes if isinstance(self.classes, str | int) else type(self.classes).__name__
            raise ValueError(f"{wanted} {got!r}")
        object.__setattr__(self, "classes", tuple(map(str, self.classes)))  # range(10) names them as well

    @property
    def has_classes(self) -> bool:
        """Whether every example is of one class: what partitions by class need."""
        return bool(self.classes) and all(
            data.labels.dim() == 1 and data.labels.dtype == torch.int64 for data in (self.train, self.test)
        )

    def __post_init__(self) -> None:
        self._check_classes()
        for what, data in (("training", self.train), ("test", self.test)):
            if missing := _missing(data):
                raise ValueError(
                    f"{self._said}: {what} examples must be a fedfibos.types.Dataset, such as "
                    f"fedfibos.data.TensorData(inputs, labels), got {type(data).__name__} without {', '.join(missing)}"
                )
            if not len(data):
                raise ValueError(f"{self._said}: it must have {what} examples, got none")
            try:
                check_targets(data.labels, len(data))
                if not self.classes or data.labels.dim() > 1:  # what else they must be, the task says
                    continue
                check_labels(data.labels, len(data))
            except ValueError as error:
                raise ValueError(f"{self._said}: {what} {error}") from error
            low, high = int(data.labels.min()), int(data.labels.max())
            if low < 0 or high >= len(self.classes):
                from_one = ": count from 0, not from 1" if (low, high) == (1, len(self.classes)) else ""
                raise ValueError(
                    f"{self._said}: {what} labels must be in 0..{len(self.classes) - 1}, positions among "
                    f"its classes, got {low if low < 0 else high}{from_one}"
                )

        self._check_owners("owners", self.owners, "training", len(self.train))
        self._check_owners("test_owners", self.test_owners, "test", len(self.test))
        if self.test_owners is not None:
            if self.owners is None:
                raise ValueError(f"{self._said}: test_owners must come with owners, whose the training examples are")
            if not torch.isin(self.test_owners, self.owners).any():
                raise ValueError(
                    f"{self._said}: test_owners must be in the numbers of owners, got {int(self.test_owners[0])} and "
                    "others, of which none owns a training example"
                )

    def _check_owners(self, name: str, owners: object, what: str, number: int) -> None:
        if owners is None:
            return
        wanted = f"int64 of shape ({number},), one a {what} example"
        if not isinstance(owners, Tensor):
            raise ValueError(f"{self._said}: {name} must be {wanted}, got {type(owners).__name__}")
        if owners.dtype != torch.int64 or owners.shape != (number,):
            got = f"{owners.dtype} of shape {tuple(owners.shape)}"
            raise ValueError(f"{self._said}: {name} must be {wanted}, got {got}")

    def to(self, device: torch.device) -> Split:
        """The same with what can be there (images) on a device; texts are padded batch by batch on the CPU."""
        train, test = (d.to(device) if isinstance(d, ImageData | TensorData) else d for d in (self.train, self.test))
        return replace(self, train=train, test=test)

    def validation(self, share: float, generator: torch.Generator) -> Split:
        """The same data with its test set put away: some training examples are held out and stand in for it.

        Args:
            share: Of the training examples that are held out, in (0, 1).
            generator: Which ones: drawn at random.
        """
        order = torch.randperm(len(self.train), generator=generator)
        held = max(1, round(share * len(order)))
        if len(order) - held < 2:
            raise ValueError(
                f"evaluation.validation = {share:g} leaves {len(order) - held} of {len(order)} training examples, "
                "wanted at least 2"
            )
        if self.owners is None:
            out, kept = order[:held].sort().values, order[held:].sort().values
            return replace(self, train=self.train.subset(kept), test=self.train.subset(out))
        is_out = torch.zeros(len(order), dtype=torch.bool)
        for owner in self.owners.unique():  # the same share of everybody's, so that nobody is left with nothing
            own = order[self.owners[order] == owner]
            is_out[own[: min(round(share * len(own)), len(own) - 1)]] = True
        kept = (~is_out).nonzero().squeeze(1)
        out = is_out.nonzero().squeeze(1)
        if not len(out):
            raise ValueError(
                f"evaluation.validation = {share:g} of every owner's examples must be at least one of somebody's, got "
                f"none of the {len(order)}"
            )
        owners, theirs = self.owners[kept], None if self.test_owners is None else self.owners[out]
        return replace(
            self, train=self.train.subset(kept), test=self.train.subset(out), owners=owners, test_owners=theirs
        )


def unseen_classes(split: Split) -> list[str]:
    """A line where classes have no training example, or a single one has all of them; and of the test set.

    A class that is trained on has no test example by chance where few are expected: that is not said.
    """
    number = len(split.classes)
    train, test = (torch.bincount(data.labels.cpu(), minlength=number) for data in (split.train, split.test))
    seen, unseen = train.nonzero().flatten().tolist(), (train == 0).nonzero().flatten().tolist()
    if len(seen) == 1:
        return [f"all training examples are of class {split.classes[seen[0]]!r}: there is nothing to learn"]
    lines = []
    if unseen:
        lines.append(f"{len(unseen)} of {number} classes have no training example ({_some(split, unseen)})")
    expected = train * (int(test.sum()) / int(train.sum()))
    if unmeasured := ((test == 0) & (expected >= EXPECTED)).nonzero().flatten().tolist():
        lines.append(
            f"{len(unmeasured)} of {number} classes have training examples but no test example "
            f"({_some(split, unmeasured)}): nothing is measured of them; draw the test set from all classes"
        )
    return lines


def _some(split: Split, numbers: list[int]) -> str:
    """The first of some classes, by name."""
    return ", ".join(repr(split.classes[number]) for number in numbers[:3]) + (", ..." if len(numbers) > 3 else "")


EXPECTED = 10.0
"""Test examples that a class would have if they were drawn as the training examples are."""


def checked_images(
    pixels: NDArray[np.uint8],
    labels: NDArray[np.integer],
    shape: tuple[int, ...],
    num_classes: int,
    file: Path | str,
) -> tuple[Tensor, Tensor]:
    """Pixels and labels as tensors, once they are what the data set's definition says.

    Args:
        pixels: uint8, shape ``(n, channels, height, width)``.
        labels: Any integer type, shape ``(n,)``.
        shape: The shape that ``pixels`` must have.
        num_classes: Labels must be below it.
        file: Named in errors.

    Returns:
        uint8 and int64 tensors.

    Raises:
        ValueError: Another shape, or a label out of range; names the file and the first such row.
    """
    if pixels.shape != shape:
        raise ValueError(f"{file}: images must have shape {shape}, got {pixels.shape}")
    if labels.shape != shape[:1]:
        raise ValueError(f"{file}: there must be {shape[0]} labels, got shape {labels.shape}")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        raise ValueError(f"{file}: labels must be in 0..{num_classes - 1}, got {labels[wrong[0]]} in row {wrong[0]}")
    return torch.from_numpy(np.ascontiguousarray(pixels)), torch.from_numpy(labels.astype(np.int64))


def check_parts(split: Split) -> None:
    """Raise ValueError unless a part of either split, as every client gets one, is a data set again."""
    for what, data in (("training", split.train), ("test", split.test)):
        where = f"data set {split.name!r}: subset of its {what} examples"
        try:
            part = data.subset(torch.arange(1))
        except (Exception, SystemExit) as error:
            raise UserCodeError(f"{describe_error(error)} ({where})") from error
        if missing := _missing(part):
            raise ValueError(f"{where} must give a data set again, got {type(part).__name__} without {missing[0]}")
        if len(part) != 1 or len(part.labels) != 1:
            raise ValueError(f"{where}: of 1 position it must give 1 example, got {len(part)}")


def _missing(data: object) -> list[str]:
    """What a data set must have and this has not."""
    return [name for name in ("labels", "batch", "subset", "__len__") if not hasattr(data, name)]
