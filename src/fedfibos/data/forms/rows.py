"""What a form has read, and how it becomes a split: classes, owners, which examples are for testing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from fedfibos.common.streams import stream
from fedfibos.common.validation import toml_text
from fedfibos.data.forms.targets import Targets
from fedfibos.data.images import ImageData, TensorData
from fedfibos.data.split import Split
from fedfibos.data.texts import TextData
from fedfibos.types import Dataset

LOG = logging.getLogger(__name__)

Share = Annotated[float, Field(gt=0, lt=1)]
SplitSeed = Annotated[int, Field(ge=0, le=10**9)]
Names = Sequence[Any]
"""Text, or whole numbers: all of one type."""


@dataclass(frozen=True)
class Rows:
    """Labelled examples, those of the training set first.

    Attributes:
        inputs: uint8 of shape ``(n, channels, height, width)`` are images, other tensors are given to the model as they
            are, strings are texts.
        targets: What is to be learnt of every example.
        num_train: How many of them are training examples; None: the test set is to be drawn.
        owners: Whose every example is; None where that is not known.
    """

    inputs: Tensor | tuple[str, ...]
    targets: Targets
    num_train: int | None = None
    owners: Names | None = None


def split_of(
    rows: Rows,
    where: str,
    test_share: float,
    split_seed: int,
    *,
    crop_and_flip: bool = False,
    standardise: bool = False,
) -> Split:
    """The split of what a form has read.

    Args:
        rows: The examples.
        where: The file or folder, for messages.
        test_share: Where no test set is given: share of every owner's examples that is drawn for it; where owners are
            unknown of every class's, and of all where there are no classes.
        split_seed: Seed of that draw.
        crop_and_flip: Whether training images are cropped and mirrored at random.
        standardise: Whether features get mean 0 and deviation 1 over the training examples.

    Raises:
        ValueError: Fewer than two classes, or one that no training example has; one line.
    """
    classes, labels = _classes(rows, where)
    owners = None if rows.owners is None else _numbered(rows.owners)
    if rows.num_train is None:
        is_class = isinstance(rows.targets.values, Sequence)
        kinds = labels if is_class else torch.zeros(len(labels), dtype=torch.int64)
        train, test = held_out(kinds if owners is None else owners, kinds, test_share, split_seed, where)
        of = "every owner's" if owners is not None else "every class's" if is_class else "all"
        how = f"drawn: {100 * test_share:g} % of {of}, split_seed {split_seed}"
    else:
        train, test = torch.arange(rows.num_train), torch.arange(rows.num_train, len(labels))
        how = "as the files have it"
        if isinstance(rows.targets.values, Sequence):
            _check_seen(labels[train], labels[test], classes, where)
    LOG.info("%s: %s training and %s test examples (%s)", where, f"{len(train):,}", f"{len(test):,}", how)
    data = _data(rows.inputs, labels, train, crop_and_flip, standardise, where)
    own = (None, None) if owners is None else (owners[train], owners[test])
    return Split(data.subset(train), data.subset(test), classes, "", *own)


def held_out(groups: Tensor, labels: Tensor, share: float, seed: int, where: str) -> tuple[Tensor, Tensor]:
    """Positions of training and of test examples, both ascending.

    Of every group the share, rounded, is drawn for testing; one example at least stays. A class of which no training
    example is left gets all of its examples back.

    Args:
        groups: int64, shape ``(n,)``: the owner or the class of each.
        labels: int64, shape ``(n,)``.
        share: In (0, 1).
        seed: Of the draw.
        where: For messages.

    Raises:
        ValueError: Nothing would be left for testing.
    """
    order = torch.randperm(len(groups), generator=stream(seed, "data", "split"))
    values, of = groups[order].unique(return_inverse=True)
    is_test = torch.zeros(len(groups), dtype=torch.bool)
    for group in order[of.argsort(stable=True)].split(of.bincount(minlength=len(values)).tolist()):
        is_test[group[: min(round(share * len(group)), len(group) - 1)]] = True
    is_test &= torch.isin(labels, labels[~is_test])
    if not is_test.any():
        raise ValueError(
            f"{where}: data.options.test_share = {share:g} must leave a test example, got none of {len(groups)}"
        )
    return (~is_test).nonzero().squeeze(1), is_test.nonzero().squeeze(1)


def _classes(rows: Rows, where: str) -> tuple[tuple[str, ...], Tensor]:
    """Names of the classes, and of every example the position of its own; or targets that are no classes."""
    values, names = rows.targets.values, rows.targets.classes
    if not len(values):
        raise ValueError(f"{where}: it must have examples, got none")
    if isinstance(values, Tensor):
        return names or (), values
    if names is not None:
        labels = torch.tensor(values, dtype=torch.int64)
        wrong = ((labels < 0) | (labels >= len(names))).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise ValueError(f"{where}: labels must be in 0..{len(names) - 1}, got {int(labels[row])} in row {row}")
        return names, labels
    known = sorted(set(values))
    if len(known) < 2:
        raise ValueError(f"{where}: it must have at least 2 classes, got {toml_text(known[0])} alone")
    place = {label: position for position, label in enumerate(known)}
    return tuple(map(str, known)), torch.tensor([place[label] for label in values])


def _check_seen(train: Tensor, test: Tensor, classes: tuple[str, ...], where: str) -> None:
    unseen = sorted(set(test.tolist()) - set(train.tolist()))
    if unseen:
        more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
        raise ValueError(
            f"{where}: every class must have training examples, got {classes[unseen[0]]!r}{more} in test examples only"
        )


def _numbered(owners: Names) -> Tensor:
    """Every owner's position among all of them, in order."""
    place = {owner: position for position, owner in enumerate(sorted(set(owners)))}
    return torch.tensor([place[owner] for owner in owners])


def _data(
    inputs: Tensor | tuple[str, ...], labels: Tensor, train: Tensor, crop_and_flip: bool, standardise: bool, where: str
) -> Dataset:
    is_image = isinstance(inputs, Tensor) and inputs.dtype == torch.uint8 and inputs.dim() == 4
    if crop_and_flip and not is_image:
        raise ValueError(f"{where}: data.options.crop_and_flip is for 8-bit images, these are none")
    if not isinstance(inputs, Tensor):
        return TextData(inputs, labels)
    if is_image:
        mean, std = pixel_statistics(inputs[train])
        return ImageData(inputs, labels, mean, std, crop_and_flip=crop_and_flip)
    if standardise:
        seen = inputs[train].double()
        deviation = seen.std(0, correction=0)
        deviation[deviation == 0] = 1.0
        inputs = ((inputs - seen.mean(0)) / deviation).float()
    return TensorData(inputs, labels)


def pixel_statistics(pixels: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, white being 1; a channel of one value has deviation 1.

    Args:
        pixels: uint8, shape ``(n, channels, height, width)``.
    """
    counts = torch.zeros(pixels.shape[1], 256, dtype=torch.float64)
    for block in pixels.split(256):  # exact in any order, and no copy of all the pixels
        for channel, values in enumerate(block.unbind(1)):
            counts[channel] += torch.bincount(values.flatten(), minlength=256)
    grey = torch.arange(256, dtype=torch.float64) / 255
    shares = counts / counts.sum(1, keepdim=True)
    mean = shares @ grey
    std = (shares @ grey.square() - mean.square()).clamp_min(0).sqrt()
    std[std < 1e-6] = 1.0
    return tuple(mean.tolist()), tuple(std.tolist())
