"""FedProx's term: the paper's step by hand, and where a client holds nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedfibos.data.images import TensorData
from fedfibos.local import local_training
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.params import Layout
from fedfibos.steps.drift import pull_of
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client

INPUT, CLASSES = (1, 2, 2), 3
LAYOUT = Layout(("w",), ((3,),), 1)


def data(n: int = 0, size: int = 8) -> TensorData:
    generator = torch.Generator().manual_seed(n)
    return TensorData(torch.randn(size, *INPUT, generator=generator), torch.arange(size) % CLASSES)


def test_the_term_in_numbers():
    """μ·(x − x₀): 0.5·(3 − 1, 2 − 2, 0 − 4)."""
    client = Client(0, 1.0, 0, 0, LocalTraining(proximal=0.5))
    pull = pull_of(client, LAYOUT, torch.tensor([1.0, 2.0, 4.0]), torch.tensor([3.0, 2.0, 0.0]))
    gradients = [torch.tensor([10.0, 10.0, 10.0])]
    pull(gradients)
    assert gradients[0].tolist() == [11.0, 10.0, 8.0]
    assert pull_of(replace(client, local=LocalTraining()), LAYOUT, torch.zeros(3), torch.zeros(3)) is None


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_steps_are_fedproxs_written_out(mu):
    """Full batches: w ← w − η·(∇F(w) + μ·(w − wᵗ))."""
    torch.manual_seed(0)
    model = model_of(nn.Sequential(nn.Flatten(), nn.Linear(4, CLASSES, bias=False)), example=torch.zeros(2, *INPUT))
    params = model.initial_params()
    client = Client(0, 1.0, 0, 0, LocalTraining(steps=5, batch_size=8, lr=0.5, proximal=mu), data())
    upload = local_training(model, params, full(model.layout), client)
    start = params.flat.clone().view(CLASSES, 4)
    w = start.clone()
    for _ in range(5):
        w.requires_grad_(True)
        loss = cross_entropy(data().inputs.flatten(1) @ w.T, data().labels)
        (gradient,) = torch.autograd.grad(loss, w)
        w = (w - 0.5 * (gradient + mu * (w - start))).detach()
    torch.testing.assert_close(upload.delta.view(CLASSES, 4), start - w)


@pytest.mark.parametrize("name", METHODS)
def test_a_larger_mu_keeps_every_methods_clients_nearer_and_off_what_they_hold_at_0(name):
    method = METHODS[name]()
    module = build("mlp", CLASSES, INPUT, seed=1, hidden=(16,))
    model = model_of(module, example=torch.zeros(2, *INPUT))
    params = model.initial_params()
    norms = []
    for mu in (0.0, 1.0, 8.0):
        local = LocalTraining(steps=8, batch_size=4, lr=0.1, proximal=mu)
        client = Client(0, 0.5, 0, 7, local, data())
        submodel = method.extract(model, method.init(params), params, client)
        upload = method.train(model, params, submodel, client)
        norms.append(float(upload.delta.norm()))
        if submodel.held is not None:
            assert not upload.delta[~submodel.held].any()
    assert norms[0] > norms[1] > norms[2] > 0
