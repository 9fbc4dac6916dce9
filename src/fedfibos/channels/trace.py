"""Run a module once and follow its channels through every operation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedfibos.channels.axes import Site
from fedfibos.channels.check import call, fixed_draws, randomise
from fedfibos.channels.factors import (
    OUTPUTS,
    Dim,
    Mismatch,
    align,
    concatenate,
    constant,
    fresh,
    keep_whole,
    leaves,
    length,
    pieces_of,
    regroup,
    same,
)
from fedfibos.channels.rule import Dims
from fedfibos.channels.rules import rule_of
from fedfibos.channels.shape_rules import pointwise
from fedfibos.channels.sites import mark, owner_of, site_of
from fedfibos.channels.sized import SIZED, Seen
from fedfibos.common.copies import copy_module

MOST_OPERATIONS = 200_000
"""Operations of one forward pass that are followed: seconds of work."""


class TooLong(Exception):
    """More operations than are followed."""


class Trace(TorchDispatchMode):
    """Which channels every tensor of a forward pass carries.

    Attributes:
        module: The copy that ran.
        operations: How many operations ran.
        seen: Where the module's own code writes sizes, and the dimensions these belong to.
        normalised: Normalisation layer without parameters -> the dimension it normalises.
        outputs: Dimensions of the logits.
        unreached: Whether a trained parameter took no part.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.module, self.operations, self._doing = module, 0, ""
        self.seen: dict[Site, list[Seen]] = {}
        self.normalised: dict[str, Dim] = {}
        self.outputs: Dims = []
        self.unreached = False
        self._dims: dict[int, tuple[Tensor, Dims]] = {}  # the tensors live on: their ids are not used again
        for tensor in (*module.parameters(), *module.buffers()):
            kind = fresh if tensor.is_floating_point() else constant
            self._enter(tensor, [kind(size) for size in tensor.shape])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and enter the dimensions of its result."""
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise TooLong
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._doing = func._schema.name.removeprefix("aten::")
        try:
            self._follow(func, args, kwargs, result)
        except Exception:  # a call that its rule does not know: every table is proved, so this loses but a few axes
            self._give_up(args, kwargs, result, "regroups them")
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The compiler need not be told of this mode: importing it takes seconds."""
        return False

    def dims(self, tensor: Tensor) -> Dims:
        """The dimensions of a tensor; constants where nothing is known."""
        if id(tensor) not in self._dims:
            self._enter(tensor, [constant(size) for size in tensor.shape])
        return self._dims[id(tensor)][1]

    def unite(self, one: Dim, other: Dim) -> None:
        """Two dimensions are the same channels, or both stay whole."""
        try:
            same(one, other, lambda: self._reason("combines them with what is no parameter"))
        except Mismatch:
            self.keep_whole([*one, *other], "groups them in two ways")

    def keep_whole(self, dim: Dim, what: str) -> None:
        """A dimension stays whole for what the present operation does with it."""
        if dim:
            keep_whole(dim, self._reason(what))

    def regroup(self, dims: Dims, sizes: Sequence[int]) -> Dims:
        """The same positions in another shape."""
        out: Dims = []
        for own, new in align([length(dim) for dim in dims], list(sizes)):
            factors = [factor for i in own for factor in dims[i]]
            try:
                out += regroup(factors, [sizes[i] for i in new])
            except Mismatch:
                self.keep_whole(factors, "views them in other groups")
                out += [constant(sizes[i]) for i in new]
        return out

    def pieces(self, dim: Dim, sizes: Sequence[int]) -> Dims:
        """Consecutive pieces of a dimension."""
        try:
            return pieces_of(dim, sizes)
        except Mismatch:
            self.keep_whole(dim, "splits them within groups")
            return [constant(size) for size in sizes]

    def join(self, dims: Sequence[Dim]) -> Dim:
        """One dimension after another."""
        return concatenate(dims)

    def meet(self, inputs: Any) -> None:
        """Enter the model's inputs, which are never cut."""
        for tensor in tree_leaves(inputs):
            if isinstance(tensor, Tensor):
                self._enter(tensor, [constant(size) for size in tensor.shape])

    def give(self, outputs: Any) -> None:
        """Keep whole what the model gives."""
        for tensor in tree_leaves(outputs):
            if isinstance(tensor, Tensor):
                self.outputs = self.outputs or list(self.dims(tensor))
                for dim in self.dims(tensor):
                    keep_whole(dim, OUTPUTS)

    def missed(self) -> bool:
        """Whether some parameter that is trained has not been met."""
        factors = (
            [leaf for dim in self.dims(p) for leaf in leaves(dim)] for p in self.module.parameters() if p.requires_grad
        )
        return any(own and all(leaf.why_whole is None and not leaf.met for leaf in own) for own in factors)

    def close(self) -> None:
        """Keep whole what no operation used."""
        self.unreached = self.missed()
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            for dim in self.dims(tensor):
                for leaf in leaves(dim):
                    if not leaf.met:
                        keep_whole([leaf], "no other channels depend on it")

    def _follow(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        rule, dims = rule_of(self._doing), None
        if rule is not None:
            dims = rule(self, result, *args, **kwargs)
        elif torch.Tag.pointwise in func.tags and isinstance(result, Tensor):
            dims = pointwise(self, result, [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)])
        if dims is None:
            self._give_up(args, kwargs, result, "passes them to an operation that is not followed")
            return
        if isinstance(result, Tensor):
            self._enter(result, dims)
        else:
            for tensor, own in zip(result, dims, strict=False):
                if isinstance(tensor, Tensor):
                    self._enter(tensor, own)

    def _enter(self, tensor: Tensor, dims: Dims) -> None:
        self._dims[id(tensor)] = (tensor, dims)

    def _give_up(self, args: Any, kwargs: Any, result: Any, what: str) -> None:
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, Tensor):
                for dim in self.dims(tensor):
                    self.keep_whole(dim, what)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and id(tensor) not in self._dims:
                self._enter(tensor, [constant(size) for size in tensor.shape])

    def _reason(self, what: str) -> str:
        return f"{owner_of(sys._getframe(2))} {what} ({self._doing})"


class _Calls(TorchFunctionMode):
    """Notes where the module's code writes sizes."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in SIZED and (site := site_of(name, sys._getframe(1))) is not None:
            try:
                seen = SIZED[name].note(self.trace.dims, result, args, kwargs or {})
            except Exception:  # a way of writing the call that is not known: its sizes stay as they are
                seen = None
            if seen is not None:
                self.trace.seen.setdefault(site, []).append(seen)
        return result


def trace_forward(module: nn.Module, example_inputs: Any, *, everywhere: bool = False) -> Trace:
    """Follow one forward pass, in evaluation mode, on a copy of the module.

    Args:
        module: Not changed.
        example_inputs: One batch.
        everywhere: Follow the ways too that the module takes in training, and with other values of its parameters.

    Raises:
        ValueError: The forward pass fails, or is too long to be followed.
    """
    own = copy_module(module).eval()
    mark(own)
    trace = Trace(own)
    trace.meet(example_inputs)
    bare = [(name, layer) for name, layer in own.named_modules() if _bare(layer)]
    hooks = [layer.register_forward_pre_hook(_noting(trace, name)) for name, layer in bare]
    try:
        _follow_pass(trace, example_inputs)
        if everywhere:
            _follow_other_ways(trace, example_inputs)
    except TooLong:
        raise ValueError(
            f"one forward pass takes more than {MOST_OPERATIONS:,} operations to follow; give a shorter example batch"
        ) from None
    except Exception as error:  # whatever the model's forward raises
        reason = (str(error) or "no message").splitlines()[0]
        raise ValueError(f"its forward pass fails on the example batch ({type(error).__name__}: {reason})") from error
    finally:
        for hook in hooks:
            hook.remove()
    trace.close()
    return trace


def _follow_pass(trace: Trace, example_inputs: Any, seed: int = 0) -> bool:
    """Follow a pass of the copy as it is now; whether it drew random numbers."""
    with torch.no_grad(), fixed_draws(seed), plain_kernels():
        before = torch.get_rng_state()
        with _Calls(trace), trace:
            outputs = call(trace.module, example_inputs)
        trace.give(outputs)
        return not torch.equal(torch.get_rng_state(), before)


WAYS = 8
"""Passes at most that look for ways taken by chance, and by the values of parameters (experts, early exits)."""


def _follow_other_ways(trace: Trace, example_inputs: Any) -> None:
    """Follow what is run in training alone, and what depends on values: as far as the module runs."""
    generator = torch.Generator().manual_seed(0)
    with suppress(Exception):
        trace.module.train()
        for seed in range(WAYS):
            if not _follow_pass(trace, example_inputs, seed):
                break
    trace.module.eval()
    with suppress(Exception):
        for _ in range(WAYS):
            randomise(trace.module, generator)
            _follow_pass(trace, example_inputs)
            if not trace.missed():
                break


def _bare(layer: nn.Module) -> bool:
    """A normalisation layer without parameters, whose number of channels no tensor tells."""
    norms = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
    return isinstance(layer, norms) and getattr(layer, "weight", None) is None


def _noting(trace: Trace, name: str) -> Callable[[nn.Module, Any], None]:
    def note(layer: nn.Module, args: Any) -> None:
        last = isinstance(layer, (nn.LayerNorm, nn.RMSNorm))
        trace.normalised[name] = trace.dims(args[0])[-1 if last else 1]

    return note


@contextmanager
def plain_kernels() -> Iterator[None]:
    """No kernel that does the work of a whole layer."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
