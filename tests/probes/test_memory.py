"""Models that change their inputs in place: nothing that is tried on them spoils an example, and training copies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedfibos import Client, LocalTraining, TensorData, federated_round, model_of
from fedfibos.analysis.cautions import cautions
from fedfibos.methods import FedFIbOS
from fedfibos.probes.memory import changes_inputs

DRAW = torch.Generator().manual_seed(0)
INPUTS, LABELS = torch.randn(8, 5, generator=DRAW), torch.arange(8) % 3


class Net(nn.Module):
    """Takes 3 from its inputs, in place or not."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.in_place = nn.Linear(5, 8), nn.Linear(8, 3), in_place

    def forward(self, x: Tensor) -> Tensor:
        x = x.sub_(3) if self.in_place else x - 3
        return self.last(self.first(x).relu())


def test_a_change_of_the_inputs_is_seen():
    assert changes_inputs(Net(in_place=True), INPUTS)
    assert not changes_inputs(Net(in_place=False), INPUTS)


@pytest.mark.parametrize("rule", ["draw", "sandwich"])
def test_a_model_that_changes_its_inputs_trains_as_one_that_does_not(rule):
    """A step of the sandwich passes its batch through twice."""
    local = LocalTraining(steps=2, batch_size=8, lr=0.1, nested=1.0, nested_rule=rule, levels=(1.0, 0.5))
    found = []
    for in_place in (True, False):
        example = INPUTS[:2].clone()
        model, method = model_of(Net(in_place), example=example), FedFIbOS()
        params = model.initial_params()
        client = Client(0, 1.0, 0, 0, local, TensorData(INPUTS.clone(), LABELS))
        assert cautions(method, model, method.init(params), params, [client]) == []
        assert model.axes.sizes == {"first": 8}
        _, after, _ = federated_round(method, model, method.init(params), params, [client])
        assert torch.equal(example, INPUTS[:2])
        found.append(after.flat)
    assert torch.equal(*found)
