"""Frozen parameters and buffers go with the channels of a slice."""

import pytest
import torch
from torch import Tensor, nn

from fedfibos.channels.family import with_nested
from fedfibos.channels.fixed import kept_channels
from fedfibos.data import TensorData
from fedfibos.methods import METHODS
from fedfibos.methods.fedbrb import FedBRB
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State


class Frozen(nn.Module):
    """Frozen batch norm as its published form has it, in buffers, behind a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.second.weight.requires_grad_(False)
        self.register_buffer("scale", torch.arange(1.0, 7.0))
        self.register_buffer("offset", torch.zeros(6))
        with torch.no_grad():
            self.second.weight.copy_(torch.arange(36.0).view(6, 6) / 36)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).relu()) * self.scale + self.offset)


def test_a_slice_has_the_frozen_values_of_its_own_channels_each_time():
    model = model_of(Frozen(), example=torch.randn(2, 3))
    assert model.axes.sizes == {"first": 6, "second": 6}
    params, x = model.initial_params(), torch.randn(4, 3)
    for first, second in (([4, 5, 0], [1, 2]), ([0, 1, 2], [5, 3]), ([4, 5, 0], [1, 2])):
        channels = {"first": torch.tensor(first), "second": torch.tensor(second)}
        submodel = model.axes.slice(model.layout, channels)
        module = model.workspace(submodel).load(submodel.gather(params.flat))
        full = model.module
        hidden = (x @ full.first.weight[first].T + full.first.bias[first]).relu()
        hidden = hidden @ full.second.weight[second][:, first].T + full.second.bias[second]
        expected = (hidden * full.scale[second]) @ full.last.weight[:, second].T + full.last.bias
        torch.testing.assert_close(module(x), expected)
        assert module.scale.tolist() == full.scale[second].tolist()


def test_a_nested_slice_has_the_frozen_values_of_its_own_channels():
    model = model_of(Frozen(), example=torch.randn(2, 3))

    def of(first: list[int], second: list[int]) -> object:
        return model.axes.slice(model.layout, {"first": torch.tensor(first), "second": torch.tensor(second)})

    outer = with_nested(of([1, 4, 5, 0], [2, 3, 5]), [of([0, 5], [5])], model.axes, model.layout)
    (member,) = outer.nested
    work = model.workspace(member, within=outer)
    assert work.module.scale.tolist() == [6.0]
    assert torch.equal(work.module.second.weight, model.module.second.weight[[5]][:, [5, 0]])


def test_channels_are_read_off_the_index_of_a_slice():
    model = model_of(Frozen(), example=torch.randn(2, 3))
    channels = {"first": torch.tensor([5, 0, 3]), "second": torch.tensor([2, 1])}
    submodel = model.axes.slice(model.layout, channels)
    read = kept_channels(model.axes, model.layout, {}, submodel)
    assert {axis: kept.tolist() for axis, kept in read.items()} == {"first": [5, 0, 3], "second": [2, 1]}
    whole = model.axes.slice(model.layout, {"first": torch.arange(6), "second": torch.tensor([4])})
    assert {a: k.tolist() for a, k in kept_channels(model.axes, model.layout, {}, whole).items()} == {"second": [4]}


def test_blocks_take_the_channels_of_the_first_tensor():
    model = model_of(Frozen(), example=torch.randn(2, 3))
    params = model.initial_params()
    method = FedBRB()
    submodel = method.extract(model, method.init(params) or State(), params, Client(0, 0.5, 3, 0, LocalTraining()))
    widths = dict(submodel.widths)
    work = model.workspace(submodel)
    work.load(submodel.gather(params.flat))
    assert work.module.scale.numel() == widths["second"]
    assert set(work.module.scale.tolist()) <= set(model.module.scale.tolist())


class Adapted(nn.Module):
    """A frozen network with an adapter: the channels between its frozen layers are of no trained tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 4), nn.Linear(4, 2)
        for layer in (self.first, self.second):
            layer.requires_grad_(False)
        self.down, self.up = nn.Linear(3, 5, bias=False), nn.Linear(5, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).relu()) + self.up(self.down(x)))


def test_channels_of_frozen_tensors_alone_are_those_of_the_slice():
    model = model_of(Adapted(), example=torch.randn(2, 3))
    assert model.axes.sizes == {"first": 6, "second": 4, "down": 5}
    channels = {"first": torch.tensor([5, 0]), "second": torch.tensor([1, 3]), "down": torch.tensor([2])}
    work = model.workspace(model.axes.slice(model.layout, channels))
    assert torch.equal(work.module.first.weight, model.module.first.weight[[5, 0]])
    assert torch.equal(work.module.second.weight, model.module.second.weight[[1, 3]][:, [5, 0]])


@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "fedbrb", "fedfibos-channels"])
def test_sliced_methods_train_beside_frozen_channels(name):
    model = model_of(Adapted(), example=torch.randn(2, 3))
    method, params = METHODS[name](), model.initial_params()
    local = LocalTraining(steps=2, batch_size=4, lr=0.1, nested=0.5, levels=(1.0, 0.5))
    local = local if name == "fedfibos-channels" else LocalTraining(steps=2, batch_size=4, lr=0.1)
    data = TensorData(torch.randn(4, 3), torch.arange(4) % 2)
    clients = [Client(n, capacity, 0, 0, local, data) for n, capacity in enumerate((1.0, 0.5))]
    _, after, report = federated_round(method, model, method.init(params), params, clients)
    assert report.rejected == {}
    assert not torch.equal(after.flat, params.flat)
