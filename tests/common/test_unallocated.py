"""Modules without the memory of their trained parameters."""

import pytest
import torch
from torch import nn

from fedfibos.common.copies import copy_module
from fedfibos.common.unallocated import allocation, nowhere, without_values, without_weights


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.full((2,), 5.0))
        self.again = self.scale
        self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("mean", torch.zeros(2))


def test_trained_parameters_are_nowhere_and_the_rest_is_real():
    with without_weights():
        module = Own()
    assert {name for name, p in module.named_parameters() if p.is_meta} == {"layer.weight", "layer.bias", "scale"}
    assert module.again is module.scale
    assert module.fixed.tolist() == [1.0, 1.0]
    assert module.mean.tolist() == [0.0, 0.0]
    assert not any(parameter.is_meta for parameter in Own().parameters())


@pytest.mark.parametrize(
    ("trained", "missing"), [(["layer.weight", "layer.bias", "scale"], None), (["scale"], "weight")]
)
def test_what_should_have_values_and_has_none_is_named(trained, missing):
    with without_weights():
        module = Own()
    assert without_values(module, trained) == (None if missing is None else f"layer.{missing}")


def test_a_copy_gets_the_memory():
    with without_weights():
        module = Own()
    copied = copy_module(module, allocation(module))
    assert copied.layer.weight.tolist() == [[0.0] * 3] * 2
    assert copied.again is copied.scale
    assert nowhere((2, 3), torch.zeros(1)).shape == (2, 3)
