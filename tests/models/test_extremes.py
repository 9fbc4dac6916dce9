"""The examples with the largest ids and the longest text are tried before any training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedfibos.data import Split, TensorData
from fedfibos.data.texts import TokenData
from fedfibos.models.extremes import check_extremes, extremes

CLASSES = ("a", "b")


class Embedded(nn.Module):
    def __init__(self, vocabulary: int = 10, positions: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, 4), nn.Embedding(positions, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return (self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))).mean(1)[:, :2]


def table(place: int, value: int) -> TensorData:
    inputs = torch.arange(60).view(20, 3) % 10
    inputs[place, 1] = value
    return TensorData(inputs, torch.arange(20) % 2)


def texts(lengths: list[int], largest: int = 9) -> TokenData:
    starts = torch.tensor([0, *lengths]).cumsum(0)
    ids = (torch.arange(int(starts[-1])) % 9).int()
    ids[int(starts[-2])] = largest  # in the last text
    return TokenData(ids, starts, torch.arange(len(lengths)) % 2, pad=0)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (table(7, 10), table(0, 0), "training example 7, with numbers from 1 to 10, 3 of them"),
        (table(0, 0), table(9, -1), "test example 9, with numbers from -1 to 9, 3 of them"),
        (texts([3, 9, 4]), texts([3, 3]), "training example 1, with numbers from 0 to 8, 9 of them"),
        (texts([3, 4]), texts([3, 3, 2], 10), "test example 2, with numbers from 7 to 10, 2 of them"),
    ],
)
def test_an_example_that_the_model_cannot_take_is_named(train, test, message):
    with pytest.raises(ValueError, match="index out of range in self") as caught:
        check_extremes(Embedded(), Split(train, test, CLASSES, name="mine"))
    assert f"the model takes the first examples of data set 'mine' but not {message}" in str(caught.value)


def test_examples_that_it_can_take_are_let_be():
    check_extremes(Embedded(), Split(table(7, 9), table(3, 0), CLASSES))
    check_extremes(Embedded(), Split(texts([3, 8]), texts([1, 2]), CLASSES))


def test_a_part_is_looked_at_alone():
    data = texts([3, 9, 4, 2])
    assert extremes(data.subset(torch.tensor([3, 0]))) == [0, 1]  # of two texts: the longest, the largest id
    assert extremes(TensorData(torch.rand(3, 2), torch.arange(3))) == []
    check_extremes(Embedded(), Split(data.subset(torch.tensor([0, 2, 3])), data.subset(torch.tensor([0])), CLASSES))
