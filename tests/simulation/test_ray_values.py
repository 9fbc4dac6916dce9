"""Values in pieces: the same tensors come back to the bit, large ones without a copy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.simulation.ray_values import packed, unpacked
from fedfibos.submodel import Mask
from fedfibos.tasks.regression import Regression


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        torch.tensor(1.5),
        torch.empty(0, 7),
        torch.tensor([True, False, True]),
        torch.tensor([1.0, -0.0, float("nan")], dtype=torch.bfloat16),
        torch.arange(6).view(2, 3).T,
        torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last),
        torch.ones(3, requires_grad=True),
    ],
    ids=["matrix", "scalar", "empty", "bool", "bfloat16", "transposed", "channels last", "with gradient"],
)
def test_a_tensor_comes_back_as_it_was(tensor):
    again = unpacked(packed(tensor))
    assert (again.dtype, again.shape, again.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert again.requires_grad == tensor.requires_grad
    assert torch.equal(again.detach().reshape(-1).view(torch.uint8), tensor.detach().reshape(-1).view(torch.uint8))


def test_a_large_tensor_is_not_copied():
    values = torch.arange(1000.0)
    stream, memory = packed({"values": values, "rest": "x"})
    assert len(stream) < 500
    assert [piece.nbytes for piece in memory] == [4000]
    assert unpacked((stream, memory))["values"].data_ptr() == values.data_ptr()


def test_a_mask_with_nested_members_comes_back():
    small = Mask(torch.tensor([True, False, False]), 1)
    mask = Mask(torch.tensor([True, True, False]), 2, (small,))
    again = unpacked(packed(mask))
    assert again.held.tolist() == [True, True, False]
    assert again.nested[0].held.tolist() == [True, False, False]
    assert (again.num_held, again.nested[0].num_held) == (2, 1)


def test_a_model_keeps_its_task_its_axes_and_tied_weights():
    module = build("cnn", 4, (1, 8, 8), seed=1)
    model = model_of(module, example=torch.zeros(2, 1, 8, 8), task=Regression().task(torch.zeros(5, 4), ()))
    axes = model.axes
    again = unpacked(packed(model))
    assert again.task.name == "regression"
    assert again._derived["axes"].sizes == axes.sizes
    assert again.initial_params().sha256() == model.initial_params().sha256()
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    copy = unpacked(packed(tied))
    assert copy[1].weight is copy[0].weight
