"""FedAvg: one model for all, averaged."""

import pytest
import torch
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.methods import FedAvg
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client

LOCAL = LocalTraining(steps=1, batch_size=1, lr=0.5)


def participant(number, label, weight=1.0):
    data = TensorData(torch.ones(1, 1), torch.tensor([label]))
    return Client(number, 0.25, 0, 0, LOCAL, data, weight=weight)


@pytest.mark.parametrize(
    ("weights", "server_lr", "expected"), [((1, 1), 1.0, 0.0), ((3, 1), 1.0, 0.125), ((3, 1), 2.0, 0.25)]
)
def test_a_round_on_paper(weights, server_lr, expected):
    """From weights 0 a client of label 0 moves by (+¼, −¼), one of label 1 by (−¼, +¼), whatever their capacities."""
    module = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(module.weight)
    model = model_of(module)
    method = FedAvg(server_lr=server_lr)
    params = model.initial_params()
    clients = [participant(0, 0, weights[0]), participant(1, 1, weights[1])]
    _, after, _ = federated_round(method, model, method.init(params), params, clients)
    assert after.flat.tolist() == [expected, -expected]


def test_a_narrow_model_is_the_same_for_everyone():
    model = model_of(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), example=torch.zeros(2, 3))
    method, params = FedAvg(capacity=0.6), model.initial_params()
    widths = {method.extract(model, method.init(params), params, participant(n, 0)).widths for n in range(3)}
    assert widths == {(("0", 2),)}
    with pytest.raises(ValueError, match="capacity must be in"):
        FedAvg(capacity=0.0)
