"""The usual algorithms beside every method: server optimisers, robust merges, the proximal term, control variates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.round import federated_round
from fedfibos.server.settings import Server
from fedfibos.submodel import holding
from fedfibos.training import LocalTraining
from fedfibos.types import Client

INPUT, CLASSES, CAPACITIES = (1, 8, 8), 4, (1.0, 0.5, 0.25)
LOCAL = LocalTraining(steps=3, batch_size=6, lr=0.05)
ALGORITHMS = {
    "momentum": (Server(optimizer="momentum", momentum=0.5), LOCAL, 1.0),
    "adam": (Server(optimizer="adam"), LOCAL, 0.02),
    "yogi": (Server(optimizer="yogi"), LOCAL, 0.02),
    "adagrad": (Server(optimizer="adagrad"), LOCAL, 0.05),
    "median": (Server(merge="median"), LOCAL, 1.0),
    "trimmed-mean": (Server(merge="trimmed-mean"), LOCAL, 1.0),
    "proximal": (Server(), replace(LOCAL, proximal=0.1), 1.0),
    "scaffold": (Server(), replace(LOCAL, scaffold=True), 1.0),
    "scaffold-adam": (Server(optimizer="adam"), replace(LOCAL, scaffold=True), 0.02),
}


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return ALGORITHMS[request.param]


@pytest.fixture(params=METHODS)
def name(request):
    return request.param


def small_model():
    return model_of(build("mlp", CLASSES, INPUT, seed=1, hidden=(16,)), example=torch.zeros(2, *INPUT))


def cohort(t, local, size=5, capacities=CAPACITIES):
    clients = []
    for n in range(size):
        generator = torch.Generator().manual_seed(n)
        images = torch.randn(12, *INPUT, generator=generator)
        data = TensorData(images, (images[:, 0, :4].sum((1, 2)) > 0).long() + 2 * (images[:, 0, 4:].sum((1, 2)) > 0))
        clients.append(Client(n, capacities[n % len(capacities)], t, 7, local, data))
    return clients


@pytest.mark.slow_where("fedrolex", "fedbrb", "fedavg", "scaffold-adam")
def test_every_method_learns_under_it(name, algorithm):
    server, local, lr = algorithm
    method, model = METHODS[name](server_lr=lr), small_model()
    params = model.initial_params()
    state, losses = method.init(params), []
    for t in range(6):
        state, params, report = federated_round(method, model, state, params, cohort(t, local), server=server)
        assert report.rejected == {}
        losses.append(report.loss)
    assert sum(losses[-2:]) < sum(losses[:2])


@pytest.mark.parametrize("name", [name for name in METHODS if name != "fedbrb"])  # whose broadcast moves the others
def test_what_nobody_holds_does_not_move(name, algorithm):
    """In the second round nobody holds the whole model: neither momentum nor variates move what is left over."""
    server, local, lr = algorithm
    settings = {"capacity": 0.5} if name == "fedavg" else {}
    method, model = METHODS[name](server_lr=lr, **settings), small_model()
    params = model.initial_params()
    state = method.init(params)
    state, params, _ = federated_round(method, model, state, params, cohort(0, local), server=server, num_clients=9)
    small = cohort(1, local, capacities=(0.25,))
    held = sum(holding(method.extract(model, state, params, c), model.layout.size) for c in small) > 0
    _, after, _ = federated_round(method, model, state, params, small, server=server, num_clients=9)
    assert not held.all()
    assert torch.equal(after.flat[~held], params.flat[~held])
    assert not torch.equal(after.flat[held], params.flat[held])


def test_the_plain_server_is_the_one_there_always_was(name):
    method, model = METHODS[name](), small_model()
    params = model.initial_params()
    state = method.init(params)
    _, plain, _ = federated_round(method, model, state, params, cohort(0, LOCAL))
    kept, same, _ = federated_round(method, model, state, params, cohort(0, LOCAL), server=Server())
    assert plain.sha256() == same.sha256()
    assert not any(key.startswith("server.") for key in kept.tensors)
