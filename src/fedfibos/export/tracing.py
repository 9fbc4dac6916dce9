"""A network as a graph that other programs can be given."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from fedfibos.common.inputs import Inputs


class ExportError(ValueError):
    """A file that cannot be written, or does not compute what the submodel does; the message is one line."""


def trace(
    module: nn.Module, examples: Inputs, any_batch: bool, most: int | None = None
) -> torch.export.ExportedProgram:
    """The network's graph, for any number of examples or for as many as given.

    Args:
        module: The network.
        examples: A batch, at least two.
        any_batch: Whether it is to take any number.
        most: Of any number, the most, where what lowers the graph must know it.

    Raises:
        ExportError: It cannot be traced.
    """
    any_number = torch.export.Dim.DYNAMIC if most is None else torch.export.Dim("batch", min=1, max=most)
    batch = {0: any_number} if any_batch else {}
    try:
        with _signature_with_names(module, examples):
            if isinstance(examples, Tensor):
                return torch.export.export(module, (examples,), dynamic_shapes=(batch,))
            shapes = {name: batch for name in examples}
            return torch.export.export(module, (), dict(examples), dynamic_shapes=shapes)
    except Exception as error:  # torch raises whatever the network's code made it stumble over
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = " ".join(lines[:2])[:300] or type(error).__name__
        advice = "no Python branch may depend on values; .safetensors needs no trace"
        if any_batch:
            advice = f"sizes are taken from tensors, x.shape[0] and not len(x), or a batch size is given, and {advice}"
        count = "any number of" if any_batch else len(first_tensor(examples))
        raise ExportError(f"the network cannot be traced for {count} examples ({said}); {advice}") from error


@contextmanager
def _signature_with_names(module: nn.Module, examples: Inputs) -> Iterator[None]:
    """The tracer wants names where forward has none.

    A slice whose code gets the slice's sizes has a forward of its own, of any arguments; a wrapper takes ``**batch``.
    """
    own = module.__dict__.get("forward")
    signature = inspect.signature(partial(type(module).forward, module))
    any_names = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    if any_names and isinstance(examples, dict):
        signature = inspect.Signature([inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in examples])
    elif not isinstance(own, partial):
        yield
        return
    named = partial(module.forward)
    named.__signature__ = signature  # type: ignore[attr-defined]
    module.__dict__["forward"] = named
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if own is not None:
            module.__dict__["forward"] = own


def contiguous(inputs: Inputs, count: int | None) -> Inputs:
    """The first so many (None: all), in the order of their dimensions and without gaps in memory.

    The tracer of ONNX does not follow gaps. Pictures of one channel can be contiguous and have the strides of channels
    last at once; ExecuTorch would take them for the latter.
    """
    if isinstance(inputs, Tensor):
        return inputs[:count].clone(memory_format=torch.contiguous_format)
    return {name: tensor[:count].clone(memory_format=torch.contiguous_format) for name, tensor in inputs.items()}


def repeated(inputs: Inputs, count: int) -> Inputs:
    """So many examples: the given ones again and again."""
    rows = torch.arange(count) % len(first_tensor(inputs))
    return inputs[rows] if isinstance(inputs, Tensor) else {name: tensor[rows] for name, tensor in inputs.items()}


def first_tensor(inputs: Inputs) -> Tensor:
    """The tensor, or the first of several: its length is the number of examples."""
    return inputs if isinstance(inputs, Tensor) else next(iter(inputs.values()))
