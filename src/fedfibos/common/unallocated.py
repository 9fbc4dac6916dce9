"""Modules built without the memory of their trained parameters: shapes, code and everything else are there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary


@contextmanager
def without_weights() -> Iterator[None]:
    """Modules that this thread builds meanwhile have their trained parameters on torch's ``meta`` device.

    Torch's layers ask for their weights by ``torch.empty``, which then gives no memory; a parameter that a module makes
    in another way is let go of as soon as it is registered. Buffers, frozen parameters and plain tensors are real, but
    for those that ``torch.empty`` gave (:func:`without_values` finds them).
    """
    thread, known = threading.get_ident(), WeakIdKeyDictionary()

    def put_aside(module: nn.Module, name: str, parameter: Any) -> nn.Parameter | None:
        if threading.get_ident() != thread or not isinstance(parameter, nn.Parameter):
            return None
        if parameter.is_meta or not parameter.requires_grad:
            return None
        if parameter not in known:  # under a second name it is still the same
            known[parameter] = nowhere(parameter.shape, parameter)
        return known[parameter]  # type: ignore[no-any-return]

    handle = register_module_parameter_registration_hook(put_aside)  # type: ignore[arg-type]  # it may give another
    try:
        with _EmptyIsNowhere():
            yield
    finally:
        handle.remove()


class _EmptyIsNowhere(TorchFunctionMode):
    """``torch.empty`` without a device gives a tensor on ``meta``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty and kwargs.get("device") is None and kwargs.get("out") is None:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


def without_values(module: nn.Module, trained: Sequence[str]) -> str | None:
    """What a module keeps that should have values and has none, if there is such a thing.

    Args:
        module: Built under :func:`without_weights`.
        trained: Names of the parameters that may be without.
    """
    named = dict(module.named_parameters())
    expected = {id(named[name]) for name in trained if name in named}
    for prefix, owner in module.named_modules():
        kept = {**owner._parameters, **owner._buffers, **vars(owner)}
        for name, value in kept.items():
            if any(tensor.is_meta and id(tensor) not in expected for tensor in _tensors(value)):
                return f"{prefix}.{name}".lstrip(".")
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    """A tensor, or those in a list or dictionary of tensors."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Tensor))
    elif isinstance(value, dict):
        yield from (each for each in value.values() if isinstance(each, Tensor))


def nowhere(shape: Sequence[int], like: Tensor) -> nn.Parameter:
    """A parameter that has only a shape.

    Made by ``torch.empty`` alone: other operations on ``meta`` import a system of symbolic algebra, 30 MiB of it.
    """
    return nn.Parameter(torch.empty(tuple(shape), dtype=like.dtype, device="meta"), like.requires_grad)


def allocation(module: nn.Module) -> dict[int, Any]:
    """For a copy of a module (:func:`fedfibos.common.copies.copy_module`): memory for each parameter that has none."""
    return {
        id(parameter): nn.Parameter(torch.zeros(parameter.shape, dtype=parameter.dtype), parameter.requires_grad)
        for parameter in module.parameters()
        if parameter.is_meta
    }
