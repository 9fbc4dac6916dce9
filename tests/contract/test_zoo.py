"""All methods train on models of many kinds, none of which knows anything of submodels."""

from __future__ import annotations

import pytest
import torch

from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from zoo import ZOO, Batch, zoo


@pytest.mark.slow_where("third_party_resnet", "fedavg", "fedrolex", "depthwise")
@pytest.mark.parametrize("name", [name for name in ZOO if name != "resnet8_group"])  # test_contract has that one
@pytest.mark.parametrize("method_name", METHODS)
def test_every_method_trains_on_every_model(name, method_name):
    example = zoo(name)
    model = model_of(example.module, example=example.example_inputs, axes=example.table)
    method = METHODS[method_name]()
    size = len(
        next(iter(example.example_inputs.values()))
        if isinstance(example.example_inputs, dict)
        else example.example_inputs
    )
    data = Batch(example.example_inputs, torch.arange(size) % example.num_classes)
    params = model.initial_params()
    state, losses = method.init(params), []
    for t in range(6):
        local = LocalTraining(steps=3, batch_size=size, lr=0.05)
        cohort = [Client(n, capacity, t, 0, local, data) for n, capacity in enumerate((1.0, 0.6, 0.4))]
        state, params, report = federated_round(method, model, state, params, cohort)
        assert report.rejected == {}
        losses.append(report.loss)
    assert bool(torch.isfinite(params.flat).all())
    assert losses[-1] < losses[0]
