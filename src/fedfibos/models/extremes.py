"""The examples with the largest and the smallest token ids, and the longest one, tried before any training.

An id beyond a vocabulary, or a text longer than a model has positions, fails in the round that first draws it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfibos.common.copies import copy_module
from fedfibos.common.draws import fixed_draws
from fedfibos.common.inputs import Inputs, copied, forward, on_cpu
from fedfibos.common.user_code import UserCodeError, run_user_code
from fedfibos.data.images import TensorData
from fedfibos.data.split import Split
from fedfibos.data.texts import TokenData
from fedfibos.types import Dataset


def check_extremes(module: nn.Module, split: Split) -> None:
    """Raise ValueError where a model fails on the examples with the extreme ids of either split; names one.

    Args:
        module: It takes the first examples. Not changed and not run.
        split: Of other data than whole numbers in memory nothing is looked at.
    """
    trial: nn.Module | None = None
    for what, data in (("training", split.train), ("test", split.test)):
        for place in extremes(data):
            trial = copy_module(module).eval() if trial is None else trial
            inputs = on_cpu(data.batch(torch.tensor([place])))
            try:
                with fixed_draws(), torch.no_grad():
                    run_user_code(forward, trial, copied(inputs))
            except UserCodeError as error:
                if _fails_on_the_first(trial, data):  # batches of one are too small for it
                    continue
                raise UserCodeError(
                    f"{error}; the model takes the first examples of data set {split.name!r} but not {what} example "
                    f"{place}, with {_described(inputs)}: a larger vocabulary, more positions, or shorter texts"
                ) from error


def extremes(data: Dataset) -> list[int]:
    """Positions of the examples with the largest and the smallest number, and of the longest; none of other data."""
    if isinstance(data, TensorData):
        inputs = data.inputs
        if inputs.is_floating_point() or inputs.is_complex() or inputs.dtype in (torch.bool, torch.uint8):
            return []
        width = max(1, inputs[:1].numel())
        return sorted({int(found) // width for found in (inputs.argmax(), inputs.argmin())}) if inputs.numel() else []
    if not isinstance(data, TokenData) or not len(data):
        return []
    texts = torch.arange(len(data)) if data.chosen is None else data.chosen
    lengths = data.starts[texts + 1] - data.starts[texts]
    owner = torch.full((len(data.starts) - 1,), -1).index_copy_(0, texts, torch.arange(len(texts)))
    of_tokens = owner.repeat_interleave(data.starts.diff())
    kept = (of_tokens >= 0).nonzero().flatten()
    ids = data.ids[kept]
    found = {int(lengths.argmax()), *(int(of_tokens[kept[int(n)]]) for n in (ids.argmax(), ids.argmin()))}
    return sorted(found)


def _fails_on_the_first(module: nn.Module, data: Dataset) -> bool:
    try:
        with fixed_draws(), torch.no_grad():
            run_user_code(forward, module, copied(on_cpu(data.batch(torch.tensor([0])))))
    except UserCodeError:
        return True
    return False


def _described(inputs: Inputs) -> str:
    """What is extreme of an example."""
    ids = inputs if isinstance(inputs, Tensor) else next(iter(inputs.values()))
    return f"numbers from {int(ids.min())} to {int(ids.max())}, {ids[0].numel()} of them"
