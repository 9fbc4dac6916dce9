"""Check a table of named axes against the module it describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from fedfibos.channels.axes import Axes, Site
from fedfibos.channels.draws import EvenDraws
from fedfibos.channels.resize import resize_module
from fedfibos.channels.sites import Fitting, mark, narrow_sites
from fedfibos.channels.sized import Ranges
from fedfibos.common.copies import copy_module
from fedfibos.common.user_code import describe_error
from fedfibos.params import without_overlaps
from fedfibos.submodel import budget

ADVICE = (
    "name them yourself: `channel_axes` of the module, or axes=, takes a table (docs/how-to/slicing.md), and "
    "`fedfibos axes FILE` prints one to fill in"
)


def check_axes(module: nn.Module, axes: Axes, example_inputs: Any) -> None:
    """Verify that a table is the module's: on random values, in evaluation mode.

    Two things must hold. Permuting the channels of an axis leaves the module's function as it is
    (:func:`check_permutations`). And copies of half the width and of one channel an axis must run and give logits of
    the same shape.

    Args:
        module: The full model; not changed.
        axes: The table.
        example_inputs: One batch: a tensor, or a dict or tuple of tensors as forward takes them.

    Raises:
        ValueError: Naming the axis, or what went wrong in the narrow copy.
    """
    probe, expected = check_permutations(module, axes, example_inputs)
    for words, ratio in WIDTHS:
        problem, _ = narrow_problem(probe, axes, axes.widths(ratio), example_inputs, expected)
        if problem:
            raise ValueError(f"the model can't run at {words} ({problem}); {ADVICE}")


WIDTHS = (("half its width", 0.5), ("one channel an axis", 1e-9))
"""What a table is tried at."""


def mixed_widths(axes: Axes, turn: int = 0) -> dict[str, int]:
    """A width of its own for every axis: slices by importance have such, and halves of a tensor are then no halves.

    Args:
        axes: The table.
        turn: 1: of axes that have the same share in turn 0, neighbours have different ones.
    """
    shares = ((0.4, 0.7, 0.55)[(i + turn * (i // 3)) % 3] for i in range(len(axes.sizes)))
    return {
        axis: max(1, min(budget(share, size), size - 1))  # narrower than the full model: of two channels one
        for share, (axis, size) in zip(shares, axes.sizes.items(), strict=True)
    }


def narrow_problem(
    probe: nn.Module,
    axes: Axes,
    widths: Mapping[str, int],
    example_inputs: Any,
    expected: Tensor,
    training: bool = False,
) -> tuple[str, bool]:
    """Run a narrower copy, in evaluation and, where ``training`` is true and the full model can, in training mode.

    Returns:
        What went wrong, empty where nothing did; and whether the module's code wrote sizes that had to be changed
        (:mod:`fedfibos.channels.sites`).
    """
    fitting = Fitting(narrow_sites(axes, widths), watched=True)
    try:
        small = resize_module(probe, replace(axes, sites={}), widths)
        mark(small)
        with fitting:
            logits = _logits(small, example_inputs)
    except Exception as error:  # whatever the model's forward raises
        return _in_a_line(error), fitting.changed
    if logits.shape != expected.shape:
        return f"it gives {tuple(logits.shape)}, not {tuple(expected.shape)}", fitting.changed
    sites = narrow_sites(axes, widths)
    for way in (_problem_of_another_batch, _training_problem) if training else ():
        problem = way(small, example_inputs, sites)
        if problem and not way(copy_module(probe), example_inputs, {}):  # or the full model has it too
            return problem, fitting.changed
    return "", fitting.changed


def _problem_of_another_batch(module: nn.Module, inputs: Any, sites: Mapping[Site, Sequence[Ranges]]) -> str:
    """What goes wrong in evaluation on one example more, and on other numbers.

    A number of the code may be one of the batch, and a model may choose what it runs by its inputs.
    """
    named = inputs if isinstance(inputs, dict) else {"": inputs}
    if not all(isinstance(tensor, Tensor) and tensor.dim() for tensor in named.values()):
        return ""
    longer = {name: torch.cat([tensor, tensor[:1]]) for name, tensor in named.items()}
    for factor in (1.0, 0.0, -10.0):
        batch = {name: t * factor if t.is_floating_point() else t for name, t in longer.items()}
        try:
            with Fitting(sites):
                shape = tuple(_logits(module, batch if isinstance(inputs, dict) else batch[""]).shape)
        except Exception as error:  # whatever the model's forward raises
            return f"{_in_a_line(error)}, of another batch"
        examples = len(next(iter(longer.values())))
        if shape[:1] != (examples,):
            return f"of {examples} examples it gives {shape}"
    return ""


def _training_problem(module: nn.Module, example_inputs: Any, sites: Mapping[Site, Sequence[Ranges]]) -> str:
    """What goes wrong where a module runs in training mode, which may take other ways; empty where nothing does.

    Args:
        module: Is changed: in training buffers are.
        example_inputs: One batch.
        sites: Sizes that its code is to have, by place.
    """
    module.train()
    for seed in range(DRAWS):
        try:
            with fixed_draws(seed), Fitting(sites):
                before = torch.get_rng_state()
                call(module, example_inputs)
                drawn = not torch.equal(torch.get_rng_state(), before)
        except Exception as error:  # whatever the model's forward raises
            return f"{_in_a_line(error)}, in training mode"
        if not drawn:
            break
    return ""


DRAWS = 8
"""Of a model that draws random numbers in training: it may go around a block by chance."""


def _in_a_line(error: Exception) -> str:
    """The kind and the message; of an error without one, as an assertion is, the line of code."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else f"{describe_error(error)}no message"


def check_permutations(module: nn.Module, axes: Axes, example_inputs: Any) -> tuple[nn.Module, Tensor]:
    """Verify that permuting the channels of an axis in all its tensors leaves the module's function as it is.

    If some tensor were forgotten, or an axis confused with another, the logits would change.

    Args:
        module: The full model; not changed.
        axes: The table.
        example_inputs: One batch: a tensor, or a dict or tuple of tensors as forward takes them.

    Returns:
        A copy of the module with random values, and its logits.

    Raises:
        ValueError: Naming the axis.
    """
    probe, expected = probe_of(module, example_inputs)
    if moved := not_axes(probe, axes, example_inputs, expected):
        raise ValueError(
            f"{moved[0]!r} is not an axis: permuting its channels changes the logits; if they come in groups or "
            f"heads say so (units), else {ADVICE}"
        )
    return probe, expected


def probe_of(module: nn.Module, example_inputs: Any) -> tuple[nn.Module, Tensor]:
    """A copy of the module with values that tell channels apart, and its logits.

    The values are random; where the logits of random ones are not finite (a square root of a parameter), the module's
    own, each larger or smaller by up to a third. A module that draws random numbers draws one for all places.

    Raises:
        ValueError: The logits are finite for neither.
    """
    generator = torch.Generator().manual_seed(0)
    for values in (randomise, _jitter):
        probe = without_overlaps(copy_module(module)).eval()  # never run: what a forward pass keeps can't be copied
        values(probe, generator)
        expected = _logits(copy_module(probe), example_inputs)
        if bool(expected.isfinite().all()):
            return probe, expected
    raise ValueError("axes cannot be checked: the module's logits are not finite near its own values")


def not_axes(probe: nn.Module, axes: Axes, example_inputs: Any, expected: Tensor) -> list[str]:
    """The axes whose channels can't be permuted; all where only together they can't."""
    generator = torch.Generator().manual_seed(1)
    permutations = {axis: _permutation(size, generator) for axis, size in axes.sizes.items()}
    if _unchanged(probe, axes, permutations, example_inputs, expected):
        return []
    moved = [a for a, p in permutations.items() if not _unchanged(probe, axes, {a: p}, example_inputs, expected)]
    return moved or list(permutations)


def moves(probe: nn.Module, axes: Axes, axis: str, example_inputs: Any, expected: Tensor) -> bool:
    """Whether permuting the channels of one axis changes the logits."""
    permutation = _permutation(axes.sizes[axis], torch.Generator().manual_seed(1))
    return not _unchanged(probe, axes, {axis: permutation}, example_inputs, expected)


def _permutation(size: int, generator: torch.Generator) -> Tensor:
    """A random order, other than that of the channels themselves."""
    order = torch.randperm(size, generator=generator)
    return order if size < 2 or bool((order != torch.arange(size)).any()) else order.roll(1)


def randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Values that tell channels apart: large enough for attention to be sharp; variances stay positive."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if isinstance(tensor, nn.Parameter) and tensor.dim() > 1 and tensor.numel():
                fan_in = tensor[0].numel()
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 2 / fan_in**0.5)
            elif tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator))


def _jitter(module: nn.Module, generator: torch.Generator) -> None:
    """The module's own values, each larger or smaller by up to a third: signs stay."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.mul_(2 / 3 + 2 / 3 * torch.rand(tensor.shape, generator=generator))


def _unchanged(
    probe: nn.Module, axes: Axes, permutations: Mapping[str, Tensor], example_inputs: Any, expected: Tensor
) -> bool:
    """True when the logits are the same after a permutation of channels."""
    permuted = copy_module(probe)
    for name, tensor in (*permuted.named_parameters(), *permuted.named_buffers()):
        for i, dim in enumerate(axes.dims.get(name, ())):
            tensor.data = tensor.data.index_select(i, axes.positions(dim, permutations))
    logits = _logits(permuted, example_inputs)
    return bool(torch.allclose(logits, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())))


def _logits(module: nn.Module, inputs: Any) -> Tensor:
    """The logits; with gradients on, so that no fused inference path hides a wrong size."""
    with fixed_draws():
        before = torch.get_rng_state()
        logits = call(module, inputs)
        drawn = not torch.equal(torch.get_rng_state(), before)
    if drawn:
        with fixed_draws(), EvenDraws():  # type: ignore[no-untyped-call]
            logits = call(module, inputs)
    if not isinstance(logits, Tensor):
        raise ValueError(f"the model must return a tensor of logits, got {type(logits).__name__}")
    return logits.detach()


@contextmanager
def fixed_draws(seed: int = 0) -> Iterator[None]:
    """Run a block on the same random numbers each time and leave torch's global stream as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def call(module: nn.Module, inputs: Any) -> Any:
    """``module`` on a copy of a batch, which it may change: a tensor, or a dict or tuple of tensors."""
    inputs = tree_map_only(Tensor, torch.clone, inputs)
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)
