"""Data that make numbers mean something else are named, and usual ones never."""

from __future__ import annotations

import pytest
import torch

from fedfibos.data import ImageData, Split, TensorData, load
from fedfibos.data.suspects import suspects
from fedfibos.data.texts import TokenData

DRAW = torch.Generator().manual_seed(0)
INPUTS = torch.randn(200, 5, generator=DRAW)
LABELS = torch.randint(4, (200,), generator=DRAW)
CLASSES = ("a", "b", "c", "d")


def of(inputs=INPUTS, labels=LABELS, test=None, classes=CLASSES) -> Split:
    test = TensorData(inputs[150:], labels[150:]) if test is None else test
    return Split(TensorData(inputs[:150], labels[:150]), test, classes)


def texts(first: int, last: int) -> TokenData:
    ids = torch.randint(9, (2000,), generator=torch.Generator().manual_seed(1)).int()
    starts = torch.arange(0, 2001, 10)
    data = TokenData(ids, starts, LABELS, pad=1)
    return data.subset(torch.arange(first, last))


class Own:
    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.inputs)

    def batch(self, indices, augment=None):
        return {"x": self.inputs[indices], "known": self.labels[indices] > 0, "length": self.labels[indices]}

    def subset(self, indices):
        return Own(self.inputs[indices], self.labels[indices])


TWICE = "are training examples too: what is measured on them says nothing of new ones"
PIXELS = torch.randint(256, (200, 1, 4, 4), generator=DRAW, dtype=torch.uint8)


def pictures(first: int, last: int, mean: float = 0.5) -> ImageData:
    return ImageData(PIXELS, LABELS, (mean,), (0.25,)).subset(torch.arange(first, last))


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (of(test=TensorData(INPUTS[:50], LABELS[:50])), f"50 of 50 test examples that were looked at {TWICE}"),
        (of(test=TensorData(INPUTS[120:180], LABELS[120:180])), f"30 of 60 test examples that were looked at {TWICE}"),
        (Split(pictures(0, 150), pictures(100, 200), CLASSES), f"50 of 100 test examples that were looked at {TWICE}"),
        (Split(texts(0, 150), texts(90, 150), CLASSES), f"60 of 60 test examples that were looked at {TWICE}"),
        (
            Split(Own(INPUTS, LABELS), Own(INPUTS, LABELS), CLASSES),
            f"200 of 200 test examples that were looked at {TWICE}",
        ),
        (of(INPUTS.bfloat16(), test=TensorData(INPUTS[:50].bfloat16(), LABELS[:50])), "50 of 50 test examples"),
        (of(INPUTS * 0), "the 150 training examples that were looked at have the same inputs: nothing can be learnt"),
        (of(torch.cat([INPUTS, LABELS[:, None] * 2.0 - 1], 1)), "feature 5 of the inputs tells the label exactly"),
        (
            of(torch.cat([torch.nn.functional.one_hot(LABELS).float(), INPUTS], 1)),
            "feature 0 and 3 more of the inputs tells the label exactly (correlation 1 over 150 training examples)",
        ),
        (
            of(torch.cat([INPUTS, INPUTS[:, :1] * 3], 1), INPUTS[:, 0] * 3, classes=()),
            "feature 0 and 1 more of the inputs tells the target exactly",
        ),
        (of(test=TensorData(INPUTS[150:] * 100, LABELS[150:])), "test inputs are 8"),
        (
            Split(pictures(0, 150), pictures(150, 200, 0.0), CLASSES),
            "test images are normalised by mean 0 and std 0.25, training images by 0.5 and 0.25: use those of the",
        ),
    ],
)
def test_what_is_suspect_is_named(split, said):
    (line,) = suspects(split)
    assert line.startswith(said)


FEW = torch.randint(2, (200, 3), generator=DRAW).float()


@pytest.mark.parametrize(
    "split",
    [
        of(),
        of(FEW),  # examples of few possible values are alike by chance
        of(torch.cat([FEW, FEW], 1)),
        of(INPUTS[:, :1]),
        of(torch.cat([INPUTS[:, :1], torch.ones(200, 1)], 1)),
        of(torch.randint(9, (200, 5), generator=DRAW)),
        of(labels=torch.zeros(200, dtype=torch.int64)),
        of(test=TensorData(INPUTS[150:, :4], LABELS[150:])),
        of(test=TensorData(INPUTS[150:151], LABELS[150:151])),
        of(INPUTS, torch.randn(200, 2, generator=DRAW), classes=()),
        Split(pictures(0, 150), pictures(150, 200), CLASSES),
        Split(texts(0, 150), texts(150, 200), CLASSES),
        Split(Own(INPUTS[:150], LABELS[:150]), Own(INPUTS[150:], LABELS[150:]), CLASSES),
        of(INPUTS.bfloat16()),
        of(INPUTS.to(torch.complex64)),
        of(INPUTS[:, 0]),
        load("digits"),
    ],
)
def test_what_is_usual_is_let_be(split):
    assert suspects(split) == []
