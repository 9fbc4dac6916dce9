"""A module as a round sees it."""

import pickle

import pytest
import torch
from torch import nn

from fedfibos.methods._slicing import prefix
from fedfibos.model import MOST_WORKSPACES, model_of
from fedfibos.submodel import full

X = torch.zeros(2, 3)


def net(hidden=4):
    return nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def test_axes_are_derived_once_from_the_example():
    model = model_of(net(), example=X)
    assert model.axes.sizes == {"0": 4}
    assert model.axes is model.axes
    assert model.on(torch.device("cpu")).axes is model.axes
    with pytest.raises(ValueError, match="needs an example batch or a table of axes, got a model with neither"):
        _ = model_of(net()).axes
    with pytest.raises(ValueError, match="a budget of 'macs' needs a model with an example batch, got one without"):
        _ = model_of(net()).macs


def test_what_slices_cost():
    """Hidden width w: 3w + w weights and biases, then 2w + 2; operations 3w + 2w."""
    model = model_of(net(), example=X)
    assert [model.parameters.at({"0": width}) for width in (4, 2)] == [26, 14]
    assert [model.macs.at({"0": width}) for width in (4, 2)] == [20, 10]


def test_one_workspace_for_each_shape_and_the_last_ones_are_kept():
    hidden = MOST_WORKSPACES + 4
    model = model_of(net(hidden), example=X)
    whole = model.workspace(full(model.layout))
    assert model.workspace(full(model.layout)) is whole
    slices = [prefix(model, width / hidden) for width in range(2, hidden)]
    works = [model.workspace(submodel) for submodel in slices]
    assert model.workspace(slices[-1]) is works[-1]
    assert model.workspace(slices[0]) is not works[0]
    assert model.workspace(full(model.layout)) is whole
    assert model.with_own_workspaces().workspace(full(model.layout)) is not whole


def test_a_pickled_model_computes_the_same_without_its_scratch_space():
    model = model_of(net(), example=X)
    model.workspace(full(model.layout))
    again = pickle.loads(pickle.dumps(model))
    assert again._workspaces == {}
    assert torch.equal(again.initial_params().flat, model.initial_params().flat)


def test_parameters_without_values_are_refused():
    with pytest.raises(ValueError, match=r"must have values, got '0.weight' on torch's meta device"):
        model_of(net().to("meta"))
