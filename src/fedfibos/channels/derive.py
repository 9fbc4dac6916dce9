"""Derive the named channel axes of any module from a trace of its operations.

The trace (:mod:`fedfibos.channels.trace`) says which dimensions of which parameters are products of which factors. Here
the factors that can be cut become axes, and the table is proved: channels are permuted and narrower copies run. What
does not pass stays whole, and the rest is cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from fedfibos.channels.axes import Axes, Dimension, Fit, Part, nearest
from fedfibos.channels.check import ADVICE, moves, not_axes, probe_of
from fedfibos.channels.factors import (
    OUTPUTS,
    Dim,
    Factor,
    Mismatch,
    concatenate,
    divide,
    flat,
    keep_whole,
    leaves,
    length,
    same,
)
from fedfibos.channels.layers import outputs_of
from fedfibos.channels.narrowing import Proof, failures, works_in_units
from fedfibos.channels.parts import parts_of
from fedfibos.channels.sized import SIZED, Seen
from fedfibos.channels.trace import Trace, trace_forward
from fedfibos.channels.units import keep_units
from fedfibos.channels.whole import FROZEN


def derive_axes(
    module: nn.Module, example_inputs: Any, units: Mapping[str, int] | None = None, whole: Sequence[str] = ()
) -> Axes:
    """Derive which tensor dimensions of a module are the same channels.

    Every operation of one forward pass is followed (:mod:`fedfibos.channels.rules`): residual sums, normalisation,
    concatenation, splits, grouped convolution, attention and its heads, gates, tied tensors, and so on. The inputs and
    the logits are never sliced. A GroupNorm of many groups, and a grouped convolution, make whole groups the unit; see
    :func:`fedfibos.channels.resize.keeps_group_size`. Attention is cut in whole heads; ``nn.MultiheadAttention``, which
    does not know of fewer heads, within each.

    The table is proved before it is returned: permuting channels leaves the logits as they are, and narrow copies run.
    A layer for which that fails, or whose channels an operation takes for something else, stays whole
    (:attr:`fedfibos.channels.axes.Axes.whole` says why), and the rest is sliced.

    Args:
        module: Any module whose forward returns logits, shape ``(batch, classes)``.
        example_inputs: One batch: a tensor, or a dict or tuple of tensors as forward takes them.
        units: Layer -> number of consecutive channels of its output that belong together, where the model's code does
            not tell. A slice then keeps whole units.
        whole: Modules and parameters that are not to be cut.

    Raises:
        ValueError: The forward pass fails or is too long, or a name is unknown.
    """
    try:
        axes, sure = _derived(module, example_inputs, units or {}, whole, everywhere=False)
    except Underivable:
        return _derived(module, example_inputs, units or {}, whole, everywhere=True)[0]
    if sure:
        return axes
    with suppress(Underivable):
        other, _ = _derived(module, example_inputs, units or {}, whole, everywhere=True)
        return other if _scalars_cut(other) > _scalars_cut(axes) else axes
    return axes


def _scalars_cut(axes: Axes) -> int:
    """Entries of the tensors that have a dimension which is cut."""
    cut = (name for name, own in axes.dims.items() if any(part.axis is not None for dim in own for part in dim))
    return sum(math.prod(axes.shape(name, {})) for name in cut)


def _derived(
    module: nn.Module, example_inputs: Any, units: Mapping[str, int], whole: Sequence[str], *, everywhere: bool
) -> tuple[Axes, bool]:
    """The table, and whether one pass has shown all there is to see: every parameter took part, and no proof failed."""
    try:
        trace = trace_forward(module, example_inputs, everywhere=everywhere)
    except ValueError as error:
        raise _underivable(str(error)) from error
    names = _Names(trace)
    _keep_named_whole(trace, whole)
    for name, unit in units.items():
        _fit_unit(names, name, unit)
    probe, expected = probe_of(module, example_inputs)
    proof = Proof(probe, example_inputs, expected)
    sure = not trace.unreached
    while True:  # every turn keeps a factor whole that was an axis
        axes, factors = names.table()
        if moved := not_axes(probe, axes, example_inputs, expected):
            sure = False
            for axis in moved:
                still = partial(_still, probe, axis, example_inputs, expected)
                keep_units(axes, axis, factors[axis], still, "permuting its channels changes the logits")
            continue
        try:
            failed, changed = failures(proof, axes)
        except ValueError as error:
            raise _underivable(str(error)) from error
        if not failed:
            return (axes if changed else replace(axes, sites={})), sure
        sure = False
        for axis, failure in failed.items():
            works = works_in_units(proof, axis, axes.sizes[axis], failure)
            why = f"a narrower copy does not run ({failure.problem})"
            keep_units(axes, axis, factors[axis], works, why, most=MOST_UNITS)


MOST_UNITS = 8
"""Sizes of units that are tried where channels can't be left out one by one; heads are such."""


def _still(probe: nn.Module, axis: str, example_inputs: Any, expected: Tensor, axes: Axes) -> bool:
    """Whether permuting the channels of an axis of a table changes nothing."""
    return not moves(probe, axes, axis, example_inputs, expected)


class Underivable(ValueError):
    """No table can be derived."""


def _underivable(reason: str) -> Underivable:
    return Underivable(f"can't derive the model's channel axes: {reason}; {ADVICE}")


def _keep_named_whole(trace: Trace, whole: Sequence[str]) -> None:
    parameters = dict(trace.module.named_parameters())
    layers = dict(trace.module.named_modules())
    for name in whole:
        why = FROZEN if name in parameters and not parameters[name].requires_grad else "model.whole names it"
        if name not in parameters and name not in layers:
            raise ValueError(f"whole: the model has no module or parameter {name!r}{nearest(name, layers)}")
        for own, parameter in parameters.items():
            if own == name or own.startswith(f"{name}.") or not name:
                for dim in trace.dims(parameter):
                    keep_whole(dim, why)


def _fit_unit(names: _Names, name: str, unit: int) -> None:
    """A slice keeps whole units of what a layer produces."""
    dim = names.outputs.get(name)
    if dim is None:
        raise ValueError(f"units: {name!r} is not a layer that produces channels{nearest(name, names.outputs)}")
    if unit < 1 or length(dim) % unit:
        raise ValueError(f"units: {length(dim)} channels of {name!r} don't divide into units of {unit}")
    try:
        keep_whole(divide(dim, unit)[1], UNIT)
    except Mismatch:
        raise ValueError(f"units: {length(dim)} channels of {name!r} don't divide into units of {unit}") from None


HEADS, UNIT = "attention keeps all heads", "channels of a unit go together"
TOGETHER = (HEADS, UNIT)
"""Why a part of a dimension stays whole, and leaves the rest to be cut."""


def _has_axis(dim: Dim, names: Mapping[int, str]) -> bool:
    return any(part.axis is not None for part in parts_of(dim, names))


class _Names:
    """The layers and tensors of a traced module, and what their dimensions are called.

    Attributes:
        outputs: Layer, or parameter of no layer that is known -> the dimension of the channels it gives.
    """

    def __init__(self, trace: Trace) -> None:
        module = trace.module
        self.trace = trace
        self.tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.outputs: dict[str, Dim] = {}
        named, own = outputs_of(module)
        for layer_name, (tensor, at) in named.items():
            self.outputs[layer_name] = trace.dims(tensor)[at]
        for name in own:
            self.outputs[name] = self._widest(name)
        for layer in module.modules():
            if isinstance(layer, nn.MultiheadAttention):
                self._tie_attention(layer)
            elif isinstance(layer, nn.LSTM) and layer.proj_size:
                self._keep_cells(layer)

    def _widest(self, name: str) -> Dim:
        """The dimension of a parameter of a module's own that carries its channels: the first that can be cut."""
        dims = self.trace.dims(self.tensors[name])
        free = [dim for dim in dims if any(leaf.why_whole is None for leaf in leaves(dim))]
        return free[0] if free else dims[0] if dims else []

    def _tie_attention(self, layer: nn.MultiheadAttention) -> None:
        """torch's attention has one number for its inputs, outputs and heads together, and keeps all heads."""
        outside, inside = self.trace.dims(layer.out_proj.weight)
        apart = [p for p in (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight) if p is not None]
        queries = apart[0] if apart else layer.in_proj_weight
        try:
            same(outside, inside)
            same(outside, self.trace.dims(queries)[1])
            for weight in apart:
                same(inside, self.trace.dims(weight)[0])
            keep_whole(divide(inside, layer.head_dim)[0], HEADS)
            for packed in (layer.in_proj_weight, layer.in_proj_bias):
                if packed is not None:  # queries, keys and values one after another
                    self.trace.dims(packed)[0] = concatenate([inside] * 3)
        except Mismatch:
            keep_whole([*outside, *inside], "attention cuts them otherwise than what is around it")

    def _keep_cells(self, layer: nn.LSTM) -> None:
        """As many cells as projections are taken by torch for an LSTM without any: it reads beyond its weights then."""
        for weights in layer.all_weights:
            keep_whole(self.trace.dims(weights[-1])[1], "torch wants more cells than projections of them")

    def table(self) -> tuple[Axes, dict[str, Factor]]:
        """The table as of now, and the factor that is each axis."""
        dims = {name: self.trace.dims(tensor) for name, tensor in self.tensors.items()}
        chosen = _chosen(itertools.chain(*dims.values()))
        names = self._axis_names(chosen)
        table = {name: tuple(parts_of(dim, names) for dim in own) for name, own in dims.items()}
        used = dict.fromkeys(part.axis for own in table.values() for dim in own for part in dim)
        factors = {names[id(factor)]: factor for factor in chosen.values() if names[id(factor)] in used}
        axes = Axes(
            {axis: factors[axis].size for axis in used if axis is not None},
            table,
            {name: parts_of(dim, names) for name, dim in self.trace.normalised.items()},
            self._classes(dims),
            self._sites(names),
            self._whole(chosen),
        )
        return axes, factors

    def _axis_names(self, chosen: Mapping[int, Factor]) -> dict[int, str]:
        """Every axis is named after the first layer of the model that gives its channels."""
        names: dict[int, str] = {}
        sources = [*self.outputs.items()]
        sources += [(name, dim) for name, t in self.tensors.items() for dim in self.trace.dims(t)]
        for name, dim in sources:
            for position, leaf in enumerate(leaves(dim)):
                if id(leaf) in chosen and id(leaf) not in names:
                    names[id(leaf)] = f"{name}[{position}]" if name in names.values() else name
        return names

    def _classes(self, dims: Mapping[str, list[Dim]]) -> dict[str, int]:
        """The entries of parameters that belong to one class each."""
        logits = {id(leaf) for dim in self.trace.outputs for leaf in leaves(dim) if not leaf.constant}
        parameters = dict(self.trace.module.named_parameters())
        return {
            name: i
            for name in parameters
            for i, dim in enumerate(dims[name])
            if dim and {id(leaf) for leaf in leaves(dim)} <= logits
        }

    def _sites(self, names: Mapping[int, str]) -> dict[Any, tuple[Fit, ...]]:
        """Where the module's code writes sizes that belong to an axis."""
        sites: dict[Any, tuple[Fit, ...]] = {}
        owned = {id(leaf) for t in self.tensors.values() for dim in self.trace.dims(t) for leaf in leaves(dim)}
        for site, times in self.trace.seen.items():
            fits: list[Fit] = []
            for seen in times:
                fits.append(self._fit(seen, names, owned, SIZED[site[0]].lengths))
            if any(part.axis for entries in fits for entry in entries if entry for part in entry[0]):
                sites[site] = (fits[0],) if all(own == fits[0] for own in fits) else tuple(fits)
        return sites

    def _fit(self, seen: Seen, names: Mapping[int, str], owned: set[int], lengths: bool) -> Fit:
        """The sizes of one call that follow the axes: those of an axis, and what a view takes apart together with one.

        None of sizes that parameters do not tell, such as the examples of a batch. Lengths that lie together with such
        ones (the channels and pixels of an image in a row) follow where the code has the full model's number.
        """
        fit: list[Any] = []
        cut = {entry[3] for entry in seen if entry and _has_axis(entry[0], names)}
        for entry in seen:
            own = set() if entry is None else {id(leaf) for leaf in leaves(entry[0])}
            follows = entry is not None and entry[3] in cut and own
            if entry is not None and follows and own <= owned:
                fit.append((parts_of(entry[0], names), entry[1], entry[2]))
            elif entry is not None and follows and lengths and _has_axis(entry[0], names):
                fit.append((parts_of(entry[0], names), entry[1], entry[2], entry[2] - entry[1]))
            else:
                fit.append(None)
        return tuple(fit)

    def _whole(self, chosen: Mapping[int, Factor]) -> dict[str, str]:
        """Layers none of whose channels are cut, and why."""
        why = {}
        for name, dim in self.outputs.items():
            own = list(leaves(dim))
            reasons = [leaf.why_whole for leaf in own if leaf.why_whole not in (None, OUTPUTS)]
            reasons.sort(key=lambda why: why in TOGETHER)
            if any(leaf.why_whole is None for leaf in own):
                reasons = ["it lies in one dimension with other channels, which are cut"]
            if reasons and not any(id(leaf) in chosen for leaf in own):
                why[name] = reasons[0] or "nothing depends on a parameter"
        return why


def _chosen(dims: Iterator[Dim]) -> dict[int, Factor]:
    """The factors that become axes: of those within one another, the outermost."""
    order: dict[int, Factor] = {}
    rivals: dict[int, set[int]] = {}
    for dim in dims:
        for chain in _chains(dim):
            free = [f for f in chain if f.why_whole is None]
            twice = [f for f in free if sum(other is f for other in free) > 1]
            keep_whole(twice, "each lies with every other of them in one dimension")
            free = [f for f in free if f.why_whole is None]
            for factor in free:
                order.setdefault(id(factor), factor)
                rivals.setdefault(id(factor), set()).update(id(other) for other in free if other is not factor)
    chosen: dict[int, Factor] = {}
    for key, factor in order.items():
        if factor.why_whole is None and not rivals[key] & chosen.keys():
            chosen[key] = factor
    return chosen


def _chains(dim: Dim) -> Iterator[list[Factor]]:
    """The leaves on every way into a dimension, the outermost first."""
    options: list[list[list[Factor]]] = []
    for factor in flat(dim):
        options.append([[factor]] if factor.parts is None else [c for part in factor.parts for c in _chains(part)])
    for choice in itertools.product(*options):
        yield [factor for chain in choice for factor in chain]


__all__ = ["Dimension", "Part", "derive_axes"]
