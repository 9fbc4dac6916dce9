"""Whether a user's own data set gives the same inputs for an example whenever it is asked: tried on three examples."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfibos.common.inputs import Inputs
from fedfibos.data.images import ImageData, TensorData
from fedfibos.data.split import Split
from fedfibos.data.texts import TextData, TokenData
from fedfibos.types import Dataset


def inconsistencies(split: Split) -> list[str]:
    """A line where batches of a split draw random numbers unasked, or where an example's inputs depend on its batch.

    Raises:
        ValueError: A part of the data has other examples than it was asked for.
    """
    parts = (("training", split.train), ("test", split.test))
    return [line for what, data in parts for line in _of(data, f"data set {split.name!r}, {what} examples")][:1]


def _of(data: Dataset, where: str) -> list[str]:
    if isinstance(data, ImageData | TensorData | TextData | TokenData) or len(data) < 2:
        return []
    places = torch.tensor(sorted({0, len(data) // 2, len(data) - 1}))
    first, again = data.batch(places), data.batch(places)
    if not _same(first, again):
        return [
            f"{where}: batch() gives other inputs at every call although it is given no generator (augment=None), so "
            "evaluation is of changed examples: draw only from augment, and nothing without it"
        ]
    for n, place in enumerate(places):
        alone, row = data.batch(place[None]), _row(first, n)
        if _alike(alone, row) and not _same(alone, row):
            return [
                f"{where}: batch() gives an example other inputs beside others than alone, so that what is measured "
                "depends on the batches: give the examples at the positions that it is asked for, scaled by numbers of "
                "all training examples"
            ]
        part = data.subset(place[None])
        if not torch.equal(part.labels, data.labels[place[None]]) or _other(part.batch(torch.tensor([0])), alone):
            raise ValueError(f"{where}: subset() must give the examples at its positions, got others at {int(place)}")
    return []


def _row(inputs: Inputs, n: int) -> Inputs:
    return inputs[n : n + 1] if isinstance(inputs, Tensor) else {name: t[n : n + 1] for name, t in inputs.items()}


def _tensors(inputs: Inputs) -> list[Tensor]:
    return [inputs] if isinstance(inputs, Tensor) else [inputs[name] for name in sorted(inputs)]


def _alike(one: Inputs, other: Inputs) -> bool:
    """Whether shapes are the same: texts are filled up to the longest of a batch."""
    return [t.shape for t in _tensors(one)] == [t.shape for t in _tensors(other)]


def _same(one: Inputs, other: Inputs) -> bool:
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return _alike(one, other) and all(
        torch.allclose(a, b, equal_nan=True) if a.is_floating_point() else torch.equal(a, b) for a, b in pairs
    )


def _other(one: Inputs, other: Inputs) -> bool:
    return _alike(one, other) and not _same(one, other)
