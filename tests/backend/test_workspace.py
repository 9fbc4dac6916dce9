"""A module over one flat vector: loaded, read back, and without a trace of the last client."""

import pytest
import torch
from torch import nn

from fedfibos.backend.workspace import Workspace
from fedfibos.params import layout_of


class Reset(nn.Module):
    """Gives its weight memory of its own in every pass, and counts passes in a buffer."""

    def __init__(self, replace=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("passes", torch.zeros(()))
        self.replace = replace

    def forward(self, x):
        self.passes = self.passes + 1
        if self.replace:
            self.weight = nn.Parameter(self.weight.detach() * 2)
        else:
            self.weight.data = self.weight.data * 2
        return x * self.weight


def workspace(module):
    return Workspace(module, layout_of(module, ["weight"]), torch.device("cpu"))


def test_parameters_are_views_of_the_vector_and_the_module_itself_stays():
    module = nn.Linear(2, 1)
    before = module.weight.detach().clone()
    work = Workspace(module, layout_of(module), torch.device("cpu"))
    loaded = work.load(torch.tensor([1.0, 2.0, 3.0]))
    assert loaded.weight.tolist() == [[1.0, 2.0]]
    assert loaded.bias.tolist() == [3.0]
    with torch.no_grad():
        loaded.weight.mul_(10)
    assert work.values.tolist() == [10.0, 20.0, 3.0]
    assert torch.equal(module.weight, before)


def test_values_in_new_memory_are_fetched_and_loading_undoes_all():
    work = workspace(Reset())
    work.load(torch.tensor([1.0, 3.0]))(torch.ones(2))
    assert work.fetch()
    assert work.values.tolist() == [2.0, 6.0]
    assert work.rebound()
    work.load(torch.tensor([5.0, 7.0]))
    assert (work.values.tolist(), float(work.module.passes)) == ([5.0, 7.0], 0.0)
    assert not work.rebound()
    assert not work.fetch()


def test_another_parameter_in_the_place_of_one_is_refused():
    work = workspace(Reset(replace=True))
    work.load(torch.tensor([1.0, 3.0]))(torch.ones(2))
    with pytest.raises(ValueError, match="forward puts another tensor in the place of parameter 'weight'"):
        work.fetch()


def test_held_tensors_stay_as_they_were_given():
    module = nn.BatchNorm1d(2)
    work = Workspace(module, layout_of(module, ["weight"]), torch.device("cpu"))
    work.hold({"running_mean": torch.tensor([4.0, 5.0])})
    work.load(torch.zeros(4)).running_mean.add_(1)
    assert work.load(torch.zeros(4)).running_mean.tolist() == [4.0, 5.0]
