"""The engine's optimiser steps are torch's, masked; dropout's stream leaves the global one as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.local import local_training, seeded
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.submodel import Mask, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client

SETTINGS = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "weight_decay": 0.01},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"lr": 0.1, "clip_norm": 0.05},
    {"lr": 0.01, "optimizer": "adamw", "weight_decay": 0.1},
    {"lr": 0.01, "optimizer": "adamw", "clip_norm": 0.05},
]


def reference(
    module: nn.Module, data: TensorData, local: LocalTraining, keep: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Full-batch steps with torch.optim; gradients multiplied by ``keep``."""
    parameters = list(module.parameters())
    if local.optimizer == "adamw":
        optimizer = torch.optim.AdamW(parameters, local.lr, local.betas, weight_decay=local.weight_decay)
    else:
        optimizer = torch.optim.SGD(parameters, local.lr, local.momentum, weight_decay=local.weight_decay)
    for _ in range(local.steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(data.inputs), data.labels).backward()
        for parameter, mask in zip(parameters, keep, strict=True):
            parameter.grad.mul_(mask)
        if local.clip_norm:
            nn.utils.clip_grad_norm_(parameters, local.clip_norm)
        optimizer.step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_steps_are_those_of_torch_optim(settings, masked):
    generator = torch.Generator().manual_seed(0)
    data = TensorData(torch.randn(12, 5, generator=generator), torch.randint(3, (12,), generator=generator))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    model = model_of(module)
    params, layout = model.initial_params(), model.layout
    submodel = full(layout)
    if masked:
        held = torch.rand(layout.size, generator=generator) > 0.5
        submodel = Mask(held, int(held.sum()))
    local = LocalTraining(steps=6, batch_size=12, **settings)
    upload = local_training(model, params, submodel, Client(0, 1.0, 0, 0, local, data))

    keep = torch.ones(layout.size) if submodel.held is None else submodel.held.float()
    with torch.no_grad():
        for parameter, mask in zip(module.parameters(), layout.views(keep), strict=True):
            parameter.mul_(mask)
    expected = torch.cat([t.reshape(-1) for t in reference(module, data, local, layout.views(keep))])
    torch.testing.assert_close(params.flat * keep - upload.delta, expected, rtol=1e-5, atol=1e-6)
    assert bool((upload.delta[keep == 0] == 0).all())


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_order_of_channels_in_memory_changes_rounding_alone(settings):
    """Gradients of images that lie channels last do so too; a step must not read them as if they did not."""
    generator = torch.Generator().manual_seed(3)
    data = TensorData(torch.randn(6, 3, 8, 8, generator=generator), torch.arange(6) % 4)
    local = LocalTraining(steps=1, batch_size=6, **settings)
    moved = []
    for channels_last in (False, True):
        model = model_of(build("cnn", 4, (3, 8, 8), seed=1, channels=(4, 8)), channels_last=channels_last)
        upload = local_training(model, model.initial_params(), full(model.layout), Client(0, 1.0, 0, 0, local, data))
        moved.append(upload.delta)
    assert float(moved[0].abs().max()) > 1e-4
    assert torch.allclose(*moved, rtol=1e-3, atol=1e-5)


def test_a_stream_of_its_own_leaves_the_global_one():
    before = torch.get_rng_state()
    with seeded(torch.Generator().manual_seed(1), torch.device("cpu")):
        first = torch.rand(3)
    with seeded(torch.Generator().manual_seed(1), torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_within_leaves_the_global_stream_too():
    def fail() -> None:
        with seeded(torch.Generator().manual_seed(1), torch.device("cpu")):
            torch.rand(3)
            raise KeyError

    before = torch.get_rng_state()
    with pytest.raises(KeyError):
        fail()
    assert torch.equal(torch.get_rng_state(), before)
