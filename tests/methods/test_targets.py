"""Targets made up for measuring: of the shape that each task wants."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.methods import METHODS
from fedfibos.methods._memory import memory_cost
from fedfibos.methods._targets import made_up_targets
from fedfibos.model import model_of
from fedfibos.tasks.language_modelling import LanguageModelling
from fedfibos.tasks.multilabel import MultiLabel
from fedfibos.tasks.regression import Regression
from fedfibos.tasks.segmentation import Segmentation
from fedfibos.tasks.task import Metric, Task
from fedfibos.training import LocalTraining

OF_TASKS = {
    "regression": (Regression(), (6, 2), (12,), [nn.Linear(16, 2)]),
    "multilabel": (MultiLabel(), (6, 2), (12,), [nn.Linear(16, 2)]),
    "language-modelling": (LanguageModelling(), (6, 3), (3, 12), [nn.Linear(16, 2)]),
    "segmentation": (Segmentation(), (6, 3, 4), (12,), [nn.Linear(16, 24), nn.Unflatten(1, (2, 3, 4))]),
}


@pytest.mark.parametrize("name", OF_TASKS)
def test_steps_of_every_task_are_measured(name):
    """By made-up targets of the shape that the task wants."""
    settings, shape, inputs, last = OF_TASKS[name]
    task = settings.task(torch.zeros(shape, dtype=torch.int64), ("a", "b"))
    module = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), *last)
    model = model_of(module, example=torch.zeros(2, *inputs), task=task)
    assert made_up_targets(model, 6).shape == shape
    assert memory_cost(model, LocalTraining(batch_size=6), METHODS["heterofl"](scaler=False).train).whole > 0


def test_a_task_that_takes_no_made_up_targets_cannot_be_measured():
    def refuse(outputs, targets):
        raise ValueError("none of these")

    metric = Metric("m", "higher", torch.mean)
    task = Task(refuse, refuse, (metric,), name="mine")
    model = model_of(nn.Sequential(nn.Linear(12, 16), nn.Linear(16, 2)), example=torch.zeros(2, 12), task=task)
    with pytest.raises(ValueError, match="task 'mine' takes neither classes nor numbers of the shape of its outputs"):
        memory_cost(model, LocalTraining(batch_size=6), METHODS["heterofl"](scaler=False).train)
