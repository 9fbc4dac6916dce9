"""A PyTorch data set as the library's own: read once, of one shape and dtype, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset

from fedfibos import ImageData, Split, TensorData, dataset_of


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


class Listed(torch.utils.data.Dataset):
    def __init__(self, *examples):
        self.examples = examples
        self.read = []

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, position):
        self.read.append(position)
        return self.examples[position]


def refused(*examples) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        dataset_of(Listed(*examples))
    return str(error.value)


def test_tensors_are_given_as_they_are():
    data = dataset_of(TensorDataset(torch.arange(6.0).view(3, 2), torch.tensor([2, 0, 1])))
    assert isinstance(data, TensorData)
    assert (data.inputs.tolist(), data.labels.tolist()) == ([[0, 1], [2, 3], [4, 5]], [2, 0, 1])
    assert Split(data, data, ("a", "b", "c")).classes == ("a", "b", "c")


def test_arrays_and_numbers_become_float32_and_each_example_is_read_once():
    given = Listed((np.array([1.0, 2.0]), np.int64(1)), ([3.0, 4.0], torch.tensor([0])))
    data = dataset_of(given)
    assert (data.inputs.dtype, data.inputs.tolist(), data.labels.tolist()) == (torch.float32, [[1, 2], [3, 4]], [1, 0])
    assert given.read == [0, 1]


@pytest.mark.parametrize(
    ("target", "dtype", "value"),
    [
        (0.5, torch.float32, 0.5),
        (np.float64(0.5), torch.float32, 0.5),
        (np.array([1.5, 2.5]), torch.float32, [1.5, 2.5]),
        ([0, 1, 1], torch.int64, [0, 1, 1]),
        (np.array([[1, 2]], np.uint8), torch.int64, [[1, 2]]),
        (torch.tensor([True, False]), torch.bool, [True, False]),
    ],
)
def test_targets_of_any_task(target, dtype, value):
    data = dataset_of(Listed((torch.zeros(2), target), (torch.ones(2), target)))
    assert (data.labels.dtype, data.labels.tolist()) == (dtype, [value, value])


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_pictures_stay_eight_bit(mode, channels):
    data = dataset_of(Listed((Image.new(mode, (5, 4), (51,) * channels if channels > 1 else 51), 0)))
    assert isinstance(data, ImageData)
    batch = data.batch(torch.tensor([0]))
    assert batch.shape == (1, channels, 4, 5)
    assert batch.unique().tolist() == pytest.approx([0.2])


def test_what_cannot_be_read_is_refused():
    x = torch.zeros(2)
    assert refused() == "dataset must have examples, got none"
    assert refused((x, 0), (torch.zeros(3), 0)) == (
        "example 1 must be torch.float32 of shape (2,), as the first is, got torch.float32 of shape (3,)"
    )
    assert refused((x, 0), (x.int(), 0)) == (
        "example 1 must be torch.float32 of shape (2,), as the first is, got torch.int32 of shape (2,)"
    )
    assert refused((x, "cat")) == "the target of example 0 must be a number, an array or a tensor, got 'cat'"
    assert refused((x, None)) == "the target of example 0 must be a number, an array or a tensor, got 'None'"
    assert refused((x, True)) == "the target of example 0 must be a number, got True: write 0 or 1"
    assert refused((x, 1), (x, 0.5)) == (
        "the target of example 1 must be torch.int64 of shape (), as the first is, got torch.float32 of shape ()"
    )
    assert refused((x, [0, 1]), (x, [0])) == (
        "the target of example 1 must be torch.int64 of shape (2,), as the first is, got torch.int64 of shape (1,)"
    )
    assert refused(x) == "example 0 must be (input, target), got Tensor"
    assert refused((x, 0, 1)) == "example 0 must be (input, target), got 3 values"
    assert refused(("text", 0)) == (
        "the input of example 0 must be a tensor, an array of numbers or a picture, got str"
    )
    with pytest.raises(ValueError, match=r"^dataset must be a map-style .*, got Endless$"):
        dataset_of(Endless())


def test_an_error_of_the_data_set_is_one_line_with_its_example():
    class Broken(Listed):
        def __getitem__(self, position):
            raise OSError("scan 7 cannot be read")

    with pytest.raises(ValueError, match=r"OSError: scan 7 cannot be read \(example 0 cannot be read\)$"):
        dataset_of(Broken(1))
