"""Every task of ours with every method: the loss goes down, and two workers give the bytes of one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from fedfibos.analysis.accuracy import evaluate
from fedfibos.data import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import Model, model_of
from fedfibos.params import Params
from fedfibos.round import federated_round
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.workers import executor
from fedfibos.submodel import full
from fedfibos.tasks import TASKS
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

CLASSES = ("a", "b", "c")
SIZE = 32


class Pixels(nn.Sequential):
    """Scores of three classes for every pixel."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 3, 1))


class NextToken(nn.Module):
    """Scores of twelve tokens at every place, from the token there."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(12, 8), nn.Linear(8, 10), nn.Linear(10, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.hidden(self.embed(tokens)).relu())


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, outputs))


@dataclass(frozen=True)
class Case:
    """A task on data that a tiny model can learn."""

    module: nn.Module
    inputs: Tensor
    targets: Tensor
    classes: tuple[str, ...] = CLASSES


def case(name: str) -> Case:
    generator = torch.Generator().manual_seed(5)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        if name == "segmentation":
            images = torch.rand(SIZE, 1, 6, 6, generator=generator)
            return Case(Pixels(), images, (images[:, 0] * 2.99).long())
        if name == "language-modelling":
            start = torch.randint(12, (SIZE, 1), generator=generator)
            tokens = (start + torch.arange(7)) % 12  # the next one is one more
            return Case(NextToken(), tokens, tokens, ())
        inputs = torch.randn(SIZE, 5, generator=generator)
        if name == "regression":
            return Case(mlp(2), inputs, inputs[:, :2] * 2 + 1, ())
        if name == "multilabel":
            return Case(mlp(3), inputs, (inputs[:, :3] > 0).long())
        return Case(mlp(3), inputs, inputs[:, :3].argmax(1))


def clients(t: int, lr: float = 0.2) -> list[Client]:
    local = LocalTraining(steps=4, batch_size=8, lr=lr)
    return [Client(n, (1.0, 0.5)[n % 2], t, 7, local) for n in range(4)]


def trained(name: str, method: str, workers: int) -> tuple[Params, State, Model, TensorData]:
    made = case(name)
    task = TASKS[name]().task(made.targets, made.classes)
    task.check_targets(made.targets)
    model = model_of(made.module, example=made.inputs[:2], task=task)
    task.check(made.module(made.inputs[:2]), made.targets[:2])
    data = TensorData(made.inputs, made.targets)
    rule = METHODS[method]()
    setting = Setting(rule, model, lambda n: data.subset(torch.arange(n, SIZE, 4)), data, None, 16)
    engine = executor(setting, workers)
    params = model.initial_params()
    state, lr = rule.init(params), 0.05 if name == "regression" else 0.2
    try:
        for t in range(8):
            state, params, report = federated_round(rule, model, state, params, clients(t, lr), engine.train)
            assert report.rejected == {}
    finally:
        engine.close()
    return params, state, model, data


def loss_of(model: Model, params: Params, data: TensorData) -> float:
    """Of the full model, on all examples."""
    module = model.workspace(full(model.layout)).load(params.flat).eval()
    with torch.no_grad():
        return float(model.task.loss(module(data.inputs), data.labels))


@pytest.mark.slow_where("classification", "multilabel", "fedrolex", "fedavg")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TASKS)
def test_every_method_learns_every_task(name, method):
    params, state, model, data = trained(name, method, 1)
    first, last = (loss_of(model, values, data) for values in (model.initial_params(), params))
    assert last < 0.97 * first
    assert trained(name, method, 2)[0].sha256() == params.sha256()
    rule = METHODS[method]()
    setting = Setting(rule, model, lambda n: data, data, None, 16)
    parts = [torch.arange(n, SIZE, 4) for n in range(4)]
    run = lambda at, trials: (setting.hits(at, trial) for trial in trials)  # noqa: E731
    found = evaluate(rule, model, state, params, clients(8), parts, run)
    for metric in model.task.metrics[1:]:
        assert found[metric.name]["submodels"].keys() == {"1.0", "0.5", "mean"}
    assert list(found["metrics"]) == [metric.name for metric in model.task.metrics]
    assert found["global"]["full"] is not None
    assert found["local"]["mean"] is not None
    assert ("adjusted" in found["local"]) == (name == "classification")
    if model.task.primary.better == "higher":
        assert 0 < found["global"]["full"] <= 1
    else:
        assert found["global"]["full"] > 0
