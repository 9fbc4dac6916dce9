"""What a few local steps tell of a model, of the scale of data and of a learning rate, before the first round."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedfibos.analysis.first_steps import first_step_cautions
from fedfibos.data import TensorData
from fedfibos.model import model_of
from fedfibos.tasks import TASKS
from fedfibos.training import LocalTraining
from fedfibos.types import Client

DRAW = torch.Generator().manual_seed(0)
INPUTS = torch.randn(100, 6, generator=DRAW)
LABELS = (INPUTS @ torch.randn(6, 4, generator=DRAW)).argmax(1)


class Net(nn.Module):
    def __init__(self, change=lambda net, h: h, before=lambda h: h) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.change, self.before = nn.Linear(6, 8), nn.Linear(8, 4), change, before

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self, self.last(self.before(self.first(x)).relu()))


def filled(value: float, *, last: bool = True) -> Net:
    net = Net()
    for parameter in net.parameters() if not last else net.last.parameters():
        nn.init.constant_(parameter, value)
    return net


def said(
    net: nn.Module, inputs: Tensor = INPUTS, told=(), task=None, targets: Tensor = LABELS, **settings
) -> list[str]:
    torch.manual_seed(0)
    model = model_of(net, **({} if task is None else {"task": task}))
    client = Client(0, 0.5, 0, 0, LocalTraining(**{"lr": 0.1, **settings}))
    return first_step_cautions(model, model.initial_params(), TensorData(inputs, targets), client, told)


@pytest.mark.parametrize(
    ("net", "start"),
    [
        (Net(lambda net, y: y + (0 * y).sum(1, keepdim=True).sqrt()), "the gradient of parameter 'first.weight' and 3"),
        (Net(lambda net, y: y.round()), "the gradient of every parameter is 0 in the first 4 local steps"),
        (Net(before=lambda h: h - 1000), "the gradient of parameter 'first.weight' and 2 more is 0 in the first 4"),
        (filled(0.0, last=False), "the gradient of parameter 'first.weight' and 2 more is 0 in the first 4"),
        (filled(0.1, last=False), "all units of 'first.weight' begin with the same values and stay alike"),
    ],
)
def test_models_that_do_not_train_are_named(net, start):
    (line,) = said(net)
    assert line.startswith(start)


@pytest.mark.parametrize(
    ("inputs", "settings", "start"),
    [
        (INPUTS, {"lr": 1000.0}, "local steps at local.lr = 1000 raise the loss of the same 8 examples from"),
        (INPUTS * 1e4, {}, "local steps at local.lr = 0.1 raise the loss of the same 8 examples from"),
        (INPUTS * 1e3, {"lr": 1e-6}, "the loss begins at"),
        (INPUTS, {"lr": 1e-10}, "4 local steps at local.lr = 1e-10 change no parameter by more than 1e-07 of its size"),
        (INPUTS, {"weight_decay": 5.0}, "local.lr * local.weight_decay = 0.5: every step takes that share"),
    ],
)
def test_scales_that_do_not_train_are_named(inputs, settings, start):
    (line,) = said(Net(), inputs, **settings)
    assert line.startswith(start)


def test_targets_far_from_zero_are_named():
    targets = 1000.0 + INPUTS[:, :4]
    (line,) = said(Net(), task=TASKS["regression"]().task(targets, ()), targets=targets, lr=1e-5)
    assert line.startswith("the loss begins at 1e+06 on 8 examples, that of a guess is")


@pytest.mark.parametrize(
    ("net", "settings"),
    [
        (Net(), {}),
        (Net(), {"optimizer": "adamw", "lr": 1e-4, "weight_decay": 0.01}),
        (Net(), {"absent_labels": "mask", "nested": 0.5, "levels": (1.0, 0.5)}),
        (filled(0.0), {}),  # a head of zeros is a usual beginning: what lies before it moves in the second step
        (Net(before=lambda h: torch.cat([h[:, :4], h[:, 4:].detach()], 1)), {}),
        (nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)), {}),
        (nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), {}),
    ],
)
def test_models_that_train_are_let_be(net, settings):
    assert said(net, **settings) == []


def test_inputs_that_the_model_scales_itself_are_let_be():
    assert said(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), INPUTS * 1e4) == []


def test_parameters_without_a_gradient_are_named_once():
    net = Net()
    net.more = nn.Linear(3, 3)
    assert said(net, told=("more.weight", "more.bias")) == []


def test_nothing_is_changed():
    net = Net()
    model = model_of(net)
    params = model.initial_params()
    before = params.flat.clone()
    client = Client(0, 1.0, 0, 0, LocalTraining(lr=0.1))
    first_step_cautions(model, params, TensorData(INPUTS, LABELS), replace(client, weight=2.0), ())
    assert torch.equal(params.flat, before)
    assert torch.equal(model.initial_params().flat, before)
