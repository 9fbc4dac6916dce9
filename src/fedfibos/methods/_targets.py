"""Targets for training steps that are only measured: of the shape that a task wants, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfibos.common.draws import fixed_draws
from fedfibos.common.inputs import copied, forward
from fedfibos.model import Model
from fedfibos.submodel import full
from fedfibos.tasks.task import Task


def made_up_targets(model: Model, examples: int) -> Tensor:
    """Zeros that the model's task takes as the targets of so many examples.

    A class an example; else a class a pixel, or a token a place, or a number an output, as the loss takes them.

    Args:
        model: With an example.
        examples: How many.

    Raises:
        ValueError: The task takes none of these.
    """
    one = torch.zeros(examples, dtype=torch.int64)
    if model.task.classes or model.example is None:
        return one
    whole = full(model.layout)
    module = model.workspace(whole).load(whole.gather(model.initial_params().to(model.device).flat)).eval()
    with fixed_draws(), torch.no_grad():
        outputs = forward(module, copied(model.place(model.example))).detach()
    shape = outputs.shape[1:]
    for targets in (
        one,
        one.new_zeros(examples, *shape[1:]),
        one.new_zeros(examples, *shape[:-1]),
        torch.zeros(examples, *shape),
    ):
        if _takes(model.task, outputs, targets[:1].expand(len(outputs), *targets.shape[1:]).to(outputs.device)):
            return targets
    raise ValueError(
        f"a budget of 'memory' needs targets to measure steps with, task {model.task.name!r} takes neither classes nor "
        "numbers of the shape of its outputs: leave it out"
    )


def _takes(task: Task, outputs: Tensor, targets: Tensor) -> bool:
    try:
        task.check(outputs, targets)
        task.loss(outputs, targets)
    except Exception:  # whatever a task's own code raises
        return False
    return True
