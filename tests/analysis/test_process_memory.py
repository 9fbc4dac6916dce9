"""The bound on a client's process, by hand."""

import pytest
import torch
from torch import nn

from fedfibos.analysis.cost import building
from fedfibos.analysis.process_memory import BESIDE, process_memory, to_build
from fedfibos.methods import METHODS
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client


def test_what_is_added_up():
    assert process_memory(1000, 70, 10, 5, 300) == 1000 + BESIDE + 100 + 20 + 5 + 300


@pytest.mark.parametrize(("tensors", "most"), [(80, 100 + 10), (8, 2 * 10 + 4 * 5)])
def test_a_client_without_weights_trains_beside_one_copy_of_the_message_or_writes_its_answer(tensors, most):
    assert process_memory(1000, tensors, 10, 5, 0) == 1000 + BESIDE + most


@pytest.mark.parametrize("frozen", [False, True])
def test_what_building_takes(frozen):
    """3·4 + 4 + 4·2 + 2 = 26 parameters of 4 bytes: four copies for a mask, six where a slice's axes are derived."""
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    module[0].bias.requires_grad_(not frozen)
    model = model_of(module, example=torch.zeros(2, 3))
    small = prefix(model, 0.6)
    assert to_build(model, full(model.layout)) == 4 * 104
    assert to_build(model, small) == (6 * 104 if frozen else 0)
    assert to_build(model, small, whole=True) == 6 * 104
    assert to_build(model, small, whole=False) == 0
    assert to_build(model, full(model.layout), whole=False) == 0


def test_a_client_of_the_whole_model_builds_it_without_weights_where_others_hold_slices():
    model = model_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), example=torch.zeros(2, 3))
    params, whole = model.initial_params(), full(model.layout)
    for name, built in (("heterofl", 0), ("fedfibos-channels", 0), ("fiarse", 4 * 104), ("fedavg", 4 * 104)):
        method = METHODS[name]()
        client = Client(0, 1.0, 0, 0, LocalTraining())
        assert building(method, model, method.init(params), params, client, whole) == built, name
