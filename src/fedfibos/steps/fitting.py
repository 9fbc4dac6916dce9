"""Whether a client's data and a model fit each other: told in a line where training begins.

The command line looks at data and model before the first round; from Python they meet here first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedfibos.common.inputs import Inputs, described
from fedfibos.common.user_code import describe_error
from fedfibos.probes.takes import advice_on
from fedfibos.tasks.task import Task

MAKE = "TensorData(inputs, labels) makes one of tensors, dataset_of(dataset) one of a PyTorch Dataset"


def check_data(data: Any, task: Task) -> None:
    """Raise ValueError unless a client's data are a data set, with labels that are classes where the task wants these.

    Args:
        data: What it has.
        task: What it trains for.
    """
    if missing := [name for name in ("labels", "batch", "subset", "__len__") if not hasattr(data, name)]:
        raise ValueError(
            f"data must have labels, batch, subset and a length, got {_kind(data)} without {missing[0]}: {MAKE}"
        )
    labels = data.labels
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels must be a torch tensor, one an example, got {_kind(labels)}")
    if not task.classes:
        return
    if labels.dtype != torch.int64 or labels.dim() != 1:
        raise ValueError(f"labels must be int64 of shape (n,), got {labels.dtype} of shape {tuple(labels.shape)}")
    if len(labels) and (least := int(labels.min())) < 0:
        raise ValueError(f"labels must be classes, from 0 on, got {least}")


def largest_class(labels: Tensor, task: Task) -> int | None:
    """The largest class among a client's labels, read once for a training; None where the task has no classes."""
    return int(labels.max()) if task.classes and len(labels) else None


def check_outputs(outputs: Any, labels: Tensor, largest: int | None) -> None:
    """Raise ValueError for outputs of a batch that no loss can be taken of.

    No value of a tensor is read: a step may be recorded, and a GPU's would be waited for.

    Args:
        outputs: The model's.
        labels: The batch's targets.
        largest: The client's largest class; None where the task has no classes.
    """
    if not isinstance(outputs, Tensor):
        raise ValueError(f"the model must return one tensor of outputs, got {_kind(outputs)}{advice_on(outputs)}")
    if not outputs.dim() or len(outputs) != len(labels):
        got = f"{len(outputs)} of {len(labels)}" if outputs.dim() else "a single number"
        raise ValueError(f"the model must make logits of every example of a batch, got them of {got}")
    if not outputs.requires_grad:
        raise ValueError("the model's outputs must have a gradient, got detached ones, or ones made under no_grad")
    if largest is None:
        return
    if outputs.dim() != 2 or not outputs.is_floating_point():
        got = f"{outputs.dtype} of shape {tuple(outputs.shape)}"
        raise ValueError(f"the model must make one score a class, shape ({len(labels)}, classes), got {got}")
    scores = outputs.shape[1]
    if largest >= scores:
        raise ValueError(f"labels must be in 0..{scores - 1}, as the model makes {scores} scores, got {largest}")


def misfit(error: Exception, inputs: Inputs, example: Inputs | None) -> str | None:
    """What to say of a model that fails on a batch of another kind than its example; None where they are alike.

    Args:
        error: What it raised.
        inputs: The batch.
        example: What the model is known to take.
    """
    if not isinstance(example, Tensor | dict) or isinstance(error, torch.OutOfMemoryError):
        return None
    if described(inputs) == described(example):
        return None
    kinds = f"an example is {described(inputs)}, one of the batch that the model was made with {described(example)}"
    return f"the model fails on the data ({describe_error(error)}); {kinds}"


def _kind(value: object) -> str:
    return type(value).__name__
