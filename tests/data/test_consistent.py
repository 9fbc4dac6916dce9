"""A user's own data set gives an example's inputs alike, alone, beside others, and in a part."""

from __future__ import annotations

import pytest
import torch

from fedfibos.data import Split, TensorData
from fedfibos.data.consistent import inconsistencies

INPUTS, LABELS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


class Own:
    """Fine by itself; a subclass makes one mistake."""

    def __init__(self, inputs=INPUTS, labels=LABELS):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.inputs)

    def batch(self, indices, augment=None):
        return self.inputs[indices]

    def subset(self, indices):
        return type(self)(self.inputs[indices], self.labels[indices])


class Noisy(Own):
    def batch(self, indices, augment=None):
        return self.inputs[indices] + torch.randn(len(indices), 5)


class ByBatch(Own):
    def batch(self, indices, augment=None):
        return self.inputs[indices] - self.inputs[indices].mean(0)


class FirstOnes(Own):
    def batch(self, indices, augment=None):
        return self.inputs[: len(indices)]


class OtherParts(Own):
    def subset(self, indices):
        return OtherParts(self.inputs[: len(indices)], self.labels[indices])


class Filled(Own):
    """Batches are as wide as their widest example."""

    def batch(self, indices, augment=None):
        return {"x": self.inputs[indices][:, : int(self.labels[indices].max()) + 1]}


class Marked(Own):
    """Several tensors, of which some have a single number or mark an example."""

    def batch(self, indices, augment=None):
        return {"x": self.inputs[indices], "known": self.labels[indices] > 0, "length": self.labels[indices]}


def said(data) -> list[str]:
    return inconsistencies(Split(data, TensorData(INPUTS, LABELS), ("a", "b", "c"), name="mine:data"))


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (Noisy(), "batch() gives other inputs at every call although it is given no generator"),
        (ByBatch(), "batch() gives an example other inputs beside others than alone"),
        (FirstOnes(), "batch() gives an example other inputs beside others than alone"),
    ],
)
def test_other_inputs_are_said(data, start):
    (line,) = said(data)
    assert line.startswith(f"data set 'mine:data', training examples: {start}")


def test_another_part_is_refused():
    message = r"subset\(\) must give the examples at its positions, got others at 6"
    with pytest.raises(ValueError, match=f"^data set 'mine:data', training examples: {message}$"):
        said(OtherParts())


@pytest.mark.parametrize("data", [Own(), Filled(), Marked(), TensorData(INPUTS, LABELS), Own(INPUTS * torch.nan)])
def test_what_is_consistent_is_let_be(data):
    assert said(data) == []
