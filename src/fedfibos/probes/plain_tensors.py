"""Tensors that are no parameters and lie in the memory of one: a copy's would keep the initial values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.common.inputs import Inputs
from fedfibos.probes.memory import share_entries
from fedfibos.probes.trial import TrialCopy


def check_plain_tensors(module: nn.Module, example: Inputs | None) -> None:
    """Raise ValueError where a module keeps a tensor in the memory of a trained parameter; names both.

    Not where a forward pass puts another one in its place before it is used, as an old
    ``torch.nn.utils.spectral_norm`` does: seen on a copy that is run on the example. Without one, a module with a hook
    before its forward pass is taken to do so.

    Args:
        module: Not changed and not run.
        example: A batch.
    """
    for prefix, key, name in _kept(module):
        if not _replaced(module, prefix, key, example):
            raise ValueError(
                f"{f'{prefix}.{key}'.lstrip('.')!r} keeps the memory of parameter {name!r} without being it, and would "
                "keep its initial values in the copies that clients train: keep the parameter itself, or take what is "
                "needed of it in forward"
            )


def _kept(module: nn.Module) -> Iterator[tuple[str, str, str]]:
    """Submodule, attribute and parameter of every such tensor."""
    named = dict(module.named_parameters())
    theirs: dict[int, list[tuple[str, Tensor]]] = {}
    for name, trained in named.items():
        if trained.requires_grad and trained.layout == torch.strided and trained.numel():
            theirs.setdefault(trained.untyped_storage().data_ptr(), []).append((name, trained))
    known = {id(tensor) for tensor in (*named.values(), *module.buffers())}
    for prefix, owner in module.named_modules():
        for key, value in vars(owner).items():
            if key in ("_parameters", "_buffers", "_modules"):
                continue
            for tensor in _held(value):
                if id(tensor) in known or tensor.layout != torch.strided or not tensor.numel():
                    continue
                for name, parameter in theirs.get(tensor.untyped_storage().data_ptr(), ()):
                    if share_entries(parameter, tensor):
                        yield prefix, key, name


def _replaced(module: nn.Module, prefix: str, key: str, example: Inputs | None) -> bool:
    """Whether a forward pass leaves none of the tensors of an attribute in its place."""
    if example is None:
        return bool(module.get_submodule(prefix)._forward_pre_hooks)
    try:
        trial = TrialCopy(module)
        owner = trial.module.get_submodule(prefix)
        before = list(_held(vars(owner)[key]))
        with torch.no_grad():
            trial.logits(example)
        after = {id(tensor) for tensor in _held(vars(owner).get(key))}
    except Exception:  # what is wrong with the module is told where it is checked
        return False
    return not any(id(tensor) in after for tensor in before)


def _held(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """Tensors that a value is or holds: in containers, in objects, and in variables around functions."""
    if isinstance(value, Tensor):
        yield value
    elif depth:
        for each in _parts(value):
            yield from _held(each, depth - 1)


def _parts(value: Any) -> list[Any]:
    """What a value consists of, as far as it may hold tensors; modules are looked at in their own place."""
    if isinstance(value, nn.Module | type):
        return []
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value)
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        around = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        return [*around, *(value.__defaults__ or ())]
    return list(vars(value).values()) if hasattr(value, "__dict__") and not callable(value) else []


def _filled(cell: CellType) -> bool:
    """Whether a variable around a function has a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
