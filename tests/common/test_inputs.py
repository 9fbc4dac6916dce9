"""A batch is what a model takes, with as many examples as were asked for: told before the model is blamed."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from fedfibos.common.inputs import check_inputs, described, forward
from fedfibos.data.finite import not_finite
from fedfibos.local import local_training
from fedfibos.model import model_of
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client

INPUTS = torch.rand(6, 4)


class Data:
    """Ten examples whose batches go through a function."""

    def __init__(self, change):
        self.change, self.labels = change, torch.arange(10) % 3

    def __len__(self):
        return 10

    def batch(self, indices, augment=None):
        return self.change(torch.ones(len(indices), 4))

    def subset(self, indices):
        return self


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[1:], "batch() must give as many examples as it is asked for, 5, got 4"),
        (lambda x: torch.cat([x, x]), "batch() must give as many examples as it is asked for, 5, got 10"),
        (lambda x: x.sum(), "batch() must give as many examples as it is asked for, 5, got a single number"),
        (lambda x: {"x": x[1:]}, "'x': batch() must give as many examples as it is asked for, 5, got 4"),
        (lambda x: x.numpy(), "a batch must be a tensor or a dict of tensors, passed by name, got ndarray"),
        (lambda x: (x, x), "a batch must be a tensor or a dict of tensors, passed by name, got tuple"),
        (lambda x: x.to_sparse(), "inputs must be dense tensors (tensor.to_dense()), got torch.sparse_coo"),
    ],
)
def test_a_batch_that_no_model_takes_is_told_as_such_in_training(change, message):
    model = model_of(nn.Linear(4, 3))
    client = Client(0, 1.0, 0, 0, LocalTraining(steps=1, batch_size=5), Data(change))
    with pytest.raises(ValueError, match=f"^in training: {re.escape(message)}$"):
        local_training(model, model.initial_params(), full(model.layout), client)


def test_a_batch_of_another_length_is_found_before_training():
    with pytest.raises(ValueError, match=r"^training examples: batch\(\) must give as many examples .*, 10, got 9$"):
        not_finite(Data(lambda x: x[1:]), "training examples")
    assert not_finite(Data(lambda x: x), "training examples") is None


def test_any_number_of_examples_will_do_where_none_is_wanted():
    check_inputs("data", INPUTS)
    check_inputs("data", {"x": INPUTS, "y": INPUTS[:2]})


class Sum(nn.Module):
    def forward(self, left, right):
        return left + 2 * right


def test_a_tensor_is_passed_by_place_and_named_ones_by_name():
    assert forward(nn.Identity(), torch.tensor([3.0])).tolist() == [3.0]
    assert forward(Sum(), {"right": torch.tensor([1.0]), "left": torch.tensor([5.0])}).tolist() == [7.0]


def test_type_and_shape_of_an_example_in_words():
    assert described(torch.zeros(7, 3, 32, 32)) == "float32 of shape (3, 32, 32)"
    named = {"ids": torch.zeros(2, 5, dtype=torch.int64), "mask": torch.ones(2, 5)}
    assert described(named) == "'ids' int64 of shape (5,), 'mask' float32 of shape (5,)"
