"""Copies of modules that have run already, or that keep what they compute."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def copy_module(module: nn.Module, made: dict[int, Any] | None = None) -> nn.Module:
    """A copy of a module. Tensors that it has computed and keeps come along as values, without their history.

    Such as an activation, or the weight of an old ``torch.nn.utils.weight_norm``: plain ``copy.deepcopy`` refuses them.

    Args:
        module: Not changed.
        made: Id of a tensor of the module -> what stands for it in the copy.
    """
    known = {} if made is None else made
    for owner in module.modules():
        for tensor in _computed(list(vars(owner).values())):
            known.setdefault(id(tensor), tensor.detach().clone())
    return copy.deepcopy(module, known)


def _computed(values: list[Any]) -> Iterator[Tensor]:
    """Tensors with a history, among values and in the containers among them."""
    for value in values:
        if isinstance(value, Tensor):
            if not value.is_leaf:
                yield value
        elif isinstance(value, list | tuple):
            yield from _computed([each for each in value if isinstance(each, Tensor)])
        elif isinstance(value, dict):
            yield from _computed([each for each in value.values() if isinstance(each, Tensor)])
