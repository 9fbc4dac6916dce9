"""Copies of modules that have run already, or that keep what they compute."""

from __future__ import annotations

import copy
from collections import OrderedDict
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
        for value in vars(owner).values():
            if type(value) in (OrderedDict, dict) and not value:
                # A dozen empty tables of hooks a module, on which deepcopy spends half of its time.
                known.setdefault(id(value), type(value)())
            elif isinstance(value, KINDS):
                for tensor in _computed(value):
                    known.setdefault(id(tensor), tensor.detach().clone())
    return copy.deepcopy(module, known)


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that ``torch.compile`` was given; any other module itself.

    A compiled one is compiled again in each copy and for each width, and its code cannot get a slice's sizes.
    """
    if type(module).__name__ != "OptimizedModule":  # whose own module takes seconds to import
        return module
    inner = module._orig_mod
    assert isinstance(inner, nn.Module)
    return inner


def _computed(value: object) -> Iterator[Tensor]:
    """Tensors with a history: the value, or what it contains."""
    if isinstance(value, Tensor):
        if not value.is_leaf:
            yield value
    elif isinstance(value, KINDS):
        for each in value.values() if isinstance(value, dict) else value:
            if isinstance(each, Tensor) and not each.is_leaf:
                yield each


KINDS = (Tensor, list, tuple, dict)
"""What may hold a tensor that was computed."""
