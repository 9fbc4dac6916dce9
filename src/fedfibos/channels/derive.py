"""Derive the named channel axes of any module from its dependency graph.

The graph is torch-pruning's (Fang et al., DepGraph: Towards Any Structural Pruning, CVPR 2023, arXiv:2301.12900);
no other module of this package knows that library.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedfibos.channels.axes import Axes, Dimension, Part, nearest
from fedfibos.channels.check import ADVICE, call, check_axes, fixed_draws
from fedfibos.channels.resize import keeps_group_size

_TWO_SIDED = (nn.modules.conv._ConvNd, nn.Linear)
_PRODUCERS = (*_TWO_SIDED, nn.Embedding, nn.MultiheadAttention)
_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def derive_axes(module: nn.Module, example_inputs: Any, units: Mapping[str, int] | None = None) -> Axes:
    """Derive which tensor dimensions of a module are the same channels.

    Handled: residual sums, normalisation, concatenation, grouped and depthwise convolution, flatten before a linear
    layer, attention heads (``nn.MultiheadAttention``: every head keeps the same positions within it), layers used
    several times, tied tensors. The inputs and the logits are never sliced. A GroupNorm of many groups, and a
    grouped convolution, make whole groups the unit; see :func:`fedfibos.channels.resize.keeps_group_size`.

    The table is checked before it is returned (:func:`fedfibos.channels.check.check_axes`).

    Args:
        module: Any module whose forward returns logits, shape ``(batch, classes)``.
        example_inputs: One batch: a tensor, or a dict or tuple of tensors as forward takes them.
        units: Layer -> number of consecutive channels of its output that belong together, where only the model's own
            code knows it: the size of a head, say, at the query projection of an attention written by hand. A slice
            then keeps whole heads.

    Raises:
        ValueError: A layer whose axes can't be derived, named; a hand-written table may be passed instead.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
            raise _underivable(name, f"it is an {type(layer).__name__}")
    trace = _trace(module, example_inputs)
    axes = _table(trace, _factors(trace, units or {}))
    check_axes(module, axes, example_inputs)
    return axes


def _underivable(name: str, reason: str) -> ValueError:
    return ValueError(f"can't derive the channel axes of {name or 'the model'!r}: {reason}; {ADVICE}")


@dataclass
class _Trace:
    """What the dependency graph says, layer by layer.

    A *root* is a set of channels that one layer produces, numbered in order of discovery. A *slot* is the input or
    output side of a layer: for every position the (root, channel) that it carries, -1 where it is never sliced.

    Attributes:
        layers: Name -> layer.
        parameter_dims: Parameter that belongs to no known layer -> the dimension that carries channels.
        sizes: Channels of every root.
        fixed: Roots that are never sliced.
        logits: Roots that are the model's logits; fixed too.
        slots: (layer or parameter name, ``in`` or ``out``) -> int64, shape ``(positions, 2)``.
    """

    layers: dict[str, nn.Module]
    parameter_dims: dict[str, int]
    sizes: list[int] = field(default_factory=list)
    fixed: set[int] = field(default_factory=set)
    logits: set[int] = field(default_factory=set)
    slots: dict[tuple[str, str], NDArray[np.int64]] = field(default_factory=dict)

    def runs(self, name: str, side: str) -> list[tuple[int | None, int, int]]:
        """A slot as ``(root, channels, positions per channel)``, one after another; root None: not sliced."""
        if (name, side) not in self.slots:
            return []
        slot = self.slots[name, side]
        starts = [0, *(np.flatnonzero(np.diff(slot[:, 0]) != 0) + 1).tolist(), len(slot)]
        return [run for a, b in itertools.pairwise(starts) for run in self._split(name, slot[a:b])]

    def _split(self, name: str, positions: NDArray[np.int64]) -> Iterator[tuple[int | None, int, int]]:
        """Positions of one root, which may come several times one after another."""
        root = int(positions[0, 0])
        if root < 0:
            yield None, len(positions), 1
            return
        channels = positions[:, 1]
        after = int(np.argmax(channels != channels[0])) or len(channels)
        once = np.repeat(np.arange(self.sizes[root]), after)
        times, rest = divmod(len(channels), len(once))
        if rest or not np.array_equal(channels, np.tile(once, times)):
            raise _underivable(name, "it takes channels apart or reorders them")
        yield from [(root, self.sizes[root], after)] * times


def _trace(module: nn.Module, example_inputs: Any) -> _Trace:
    """Build the dependency graph and read off which channels every layer sees."""
    traced = copy.deepcopy(module).eval()
    for parameter in traced.parameters():
        parameter.requires_grad_(True)  # the graph follows gradients
    import torch_pruning  # here: it takes a second and memory, which a device that holds masks has no use for

    graph = torch_pruning.DependencyGraph()
    try:
        with torch.enable_grad(), fixed_draws():
            graph.build_dependency(traced, example_inputs, forward_fn=call, verbose=False)
    except Exception as error:  # whatever the model's forward or the tracer raise
        raise _underivable("", f"tracing failed ({type(error).__name__}: {str(error).splitlines()[0]})") from error
    names: dict[Any, str] = {layer: name for name, layer in traced.named_modules()}
    names |= {parameter: name for name, parameter in traced.named_parameters()}
    trace = _Trace(dict(traced.named_modules()), {names[p]: dim for p, dim in graph.unwrapped_parameters})
    for layer in list(graph.module2node):
        if isinstance(layer, _PRODUCERS) and (names[layer], "out") not in trace.slots:
            _read_group(graph, layer, names, trace)
    return trace


def _read_group(graph: Any, producer: nn.Module, names: Mapping[Any, str], trace: _Trace) -> None:
    """Enter the channels that a layer produces, wherever they are seen."""
    pruner = graph.get_pruner_of_module(producer)
    root, size = len(trace.sizes), pruner.get_out_channels(producer)
    trace.sizes.append(size)
    for item in graph.get_pruning_group(producer, pruner.prune_out_channels, list(range(size))):
        node, layer = item.dep.target, item.dep.target.module
        output = not isinstance(layer, _TWO_SIDED) or graph.is_out_channel_pruning_fn(item.dep.handler)
        if output and not node.outputs:
            trace.fixed.add(root)
            trace.logits.add(root)
        if isinstance(layer, nn.modules.conv._ConvNd) and layer.groups > 1 and not node.inputs:
            trace.fixed.add(root)  # its channels are those of the model's input
        if layer not in names:
            continue  # an operation without tensors of its own
        if isinstance(layer, nn.Parameter):  # torch-pruning remembers one dimension for all parameters: the last one's
            length = layer.shape[trace.parameter_dims[names[layer]]]
        else:
            pruner = graph.get_pruner_of_module(layer)
            length = pruner.get_out_channels(layer) if output else pruner.get_in_channels(layer)
        if length is None:
            continue  # it treats all channels alike
        slot = trace.slots.setdefault((names[layer], "out" if output else "in"), np.full((length, 2), -1))
        if max(item.idxs) >= length or (slot[item.idxs, 0] >= 0).any():
            raise _underivable(names[layer], "its channels belong to several axes at once")
        slot[item.idxs, 0], slot[item.idxs, 1] = root, item.root_idxs


@dataclass(frozen=True)
class _Factor:
    """A root as ``before`` x ``size`` channels of the axis x ``after``; axis None: never sliced."""

    axis: str | None
    size: int
    before: int
    after: int


@dataclass
class _Constraints:
    """How every root may be cut: ``blocks`` equal contiguous blocks, of which ``before`` series are cut alike."""

    blocks: list[int]
    before: list[int]
    ties: list[tuple[int, int]]

    def tied(self) -> list[int]:
        """For every root the representative of the roots that lose the same blocks."""
        top = list(range(len(self.blocks)))
        for a, b in self.ties:
            old, new = max(top[a], top[b]), min(top[a], top[b])
            top = [new if t == old else t for t in top]
        return top


def _factors(trace: _Trace, units: Mapping[str, int]) -> list[_Factor]:
    """The unit in which every root may be sliced, and the axis it belongs to."""
    limits = _Constraints(list(trace.sizes), [1] * len(trace.sizes), [])
    for name, layer in trace.layers.items():
        if isinstance(layer, nn.modules.conv._ConvNd) and layer.groups > 1:
            _fit_grouped_conv(trace, name, layer.groups, limits)
        elif isinstance(layer, nn.GroupNorm):
            _fit_group_norm(trace, name, layer, limits)
        elif isinstance(layer, nn.MultiheadAttention):
            for root, _, _ in trace.runs(name, "out"):
                if root is not None:
                    limits.before[root] = math.lcm(limits.before[root], layer.num_heads)
    for name, unit in units.items():
        _fit_unit(trace, name, unit, limits)
    tops = limits.tied()
    names = _axis_names(trace, tops)
    fixed = {tops[root] for root in trace.fixed}
    factors = []
    for root, size in enumerate(trace.sizes):
        peers = [peer for peer, top in enumerate(tops) if top == tops[root]]
        blocks = math.gcd(*(limits.blocks[peer] for peer in peers))
        before = math.lcm(*(limits.before[peer] for peer in peers))
        if blocks % before:
            raise _underivable(names[tops[root]], "channel groups and attention heads cut it differently")
        sliced = tops[root] not in fixed and blocks > before
        axis = names[tops[root]] if sliced else None
        factors.append(_Factor(axis, blocks // before, before, size // blocks))
    return factors


def _fit_unit(trace: _Trace, name: str, unit: int, limits: _Constraints) -> None:
    """A slice keeps whole units of what a layer produces."""
    runs = trace.runs(name, "out")
    if not runs:
        raise ValueError(f"units: {name!r} is not a layer that produces channels{nearest(name, trace.layers)}")
    for root, size, after in runs:
        if unit < 1 or size * after % unit or unit % after:
            raise ValueError(f"units: {size * after} channels of {name!r} don't divide into units of {unit}")
        if root is not None:
            limits.blocks[root] = math.gcd(limits.blocks[root], size * after // unit)


def _fit_grouped_conv(trace: _Trace, name: str, groups: int, limits: _Constraints) -> None:
    """Both sides of a grouped convolution lose the same whole groups."""
    inside, outside = trace.runs(name, "in"), trace.runs(name, "out")
    if not inside:  # a depthwise convolution is one slot to the graph, unless its input is the model's
        inside = outside
    if len(inside) > 1 or len(outside) > 1 or any(after > 1 for _, _, after in (*inside, *outside)):
        raise _underivable(name, "a grouped convolution of several axes")
    roots = [root for root, _, _ in (*inside, *outside) if root is not None]
    for root in roots:
        limits.blocks[root] = math.gcd(limits.blocks[root], groups)
    if len(roots) == 2:
        limits.ties.append((roots[0], roots[1]))
    else:
        trace.fixed.update(roots)


def _fit_group_norm(trace: _Trace, name: str, norm: nn.GroupNorm, limits: _Constraints) -> None:
    """A slice keeps whole groups, or the number of groups."""
    per_group = norm.num_channels // norm.num_groups
    whole = keeps_group_size(norm.num_groups, norm.num_channels)
    runs, offset = trace.runs(name, "out"), 0
    for root, size, after in runs:
        aligned = offset % per_group == 0 and size * after % per_group == 0 and per_group % after == 0
        single = norm.num_groups == 1 or (len(runs) == 1 and after == 1)
        if not (aligned if whole else single):
            raise _underivable(name, "its groups span several axes")
        if root is not None and whole:
            limits.blocks[root] = math.gcd(limits.blocks[root], size * after // per_group)
        elif root is not None:
            limits.before[root] = math.lcm(limits.before[root], norm.num_groups)
        offset += size * after


def _axis_names(trace: _Trace, tops: list[int]) -> dict[int, str]:
    """Every axis is named after the first layer of the model that carries it on its output side."""
    names: dict[int, str] = {}
    for name, side in [(name, "out") for name in (*trace.layers, *trace.parameter_dims)]:
        for position, (root, _, _) in enumerate(trace.runs(name, side)):
            if root is not None and tops[root] not in names:
                names[tops[root]] = f"{name}[{position}]" if name in names.values() else name
    return names


def _name_of(tensor: Any, first_name: dict[int, str], name: str) -> str:
    """The name that a layer's tensor goes by; it has none where it is computed from others."""
    if id(tensor) not in first_name:
        raise _underivable(name, "it is computed from other parameters (a parametrisation)")
    return first_name[id(tensor)]


def _table(trace: _Trace, factors: list[_Factor]) -> Axes:
    """Slots, cut as the factors say, as the dimensions of every tensor."""
    model = trace.layers[""]
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    first_name = {id(tensor): name for name, tensor in tensors.items()}
    dims: dict[str, tuple[Dimension, ...]] = {}
    features: dict[str, Dimension] = {}
    classes: dict[str, int] = {}

    def enter(name: str, tensor: Any, entry: tuple[Dimension, ...]) -> None:
        known = dims.setdefault(_name_of(tensor, first_name, name), entry)
        if known != entry:
            raise _underivable(name, f"it is tied to {first_name[id(tensor)]!r}, which is sliced differently")

    for name, layer in trace.layers.items():
        if not trace.runs(name, "in") and not trace.runs(name, "out"):
            continue
        inside, outside = _dimension(trace, factors, name, "in"), _dimension(trace, factors, name, "out")
        for own, entry in _entries(layer, inside, outside).items():
            tensor = _own_tensor(layer, own)
            if tensor is not None:
                sized = tuple(dim or _whole(n) for dim, n in zip(entry, tensor.shape, strict=True))
                enter(f"{name}.{own}" if name else own, tensor, sized)
                if outside and {root for root, _, _ in trace.runs(name, "out")} <= trace.logits:
                    classes |= {first_name[id(tensor)]: i for i, dim in enumerate(entry) if dim is outside}
        if isinstance(layer, _NORMS) and getattr(layer, "weight", None) is None:
            features[name] = outside
    for name, channel_dim in trace.parameter_dims.items():
        channels = _dimension(trace, factors, name, "out")
        whole = [_whole(n) for n in tensors[name].shape]
        whole[channel_dim] = channels or whole[channel_dim]
        enter(name, tensors[name], tuple(whole))
    table = {name: dims.get(name, tuple(_whole(n) for n in tensor.shape)) for name, tensor in tensors.items()}
    used = dict.fromkeys(part.axis for entry in table.values() for dim in entry for part in dim)
    found = {factor.axis: factor.size for factor in factors}
    return Axes({axis: found[axis] for axis in used if axis is not None}, table, features, classes)


def _dimension(trace: _Trace, factors: list[_Factor], name: str, side: str) -> Dimension:
    """The parts of a slot; empty where the graph did not see it."""
    parts = []
    for root, size, after in trace.runs(name, side):
        factor = None if root is None else factors[root]
        if factor is None or factor.axis is None:
            parts.append(Part(None, after=size * after))
        else:
            parts.append(Part(factor.axis, factor.before, factor.after * after))
    return tuple(parts)


def _whole(length: int) -> Dimension:
    return (Part(None, after=length),)


def _own_tensor(layer: nn.Module, path: str) -> Any:
    """A parameter or buffer of the layer, or None where it has none of that name."""
    owner, _, name = path.rpartition(".")
    return getattr(layer.get_submodule(owner), name, None)


def _entries(layer: nn.Module, inside: Dimension, outside: Dimension) -> dict[str, tuple[Dimension, ...]]:
    """Dimensions of the tensors of one of torch's layers; an empty dimension is never sliced."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        sides = (inside, outside) if layer.transposed else (outside, inside)
        second = sides[1] if layer.groups == 1 else ()
        return {"weight": (sides[0], second, *[()] * len(layer.kernel_size)), "bias": (outside,)}
    if isinstance(layer, nn.Linear):
        return {"weight": (outside, inside), "bias": (outside,)}
    if isinstance(layer, nn.Embedding):
        return {"weight": ((), outside)}
    if isinstance(layer, nn.MultiheadAttention):
        three = outside * 3
        each = {name: (outside, outside) for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight")}
        return {
            **each,
            "in_proj_weight": (three, outside),
            "in_proj_bias": (three,),
            "bias_k": ((), (), outside),
            "bias_v": ((), (), outside),
            "out_proj.weight": (outside, outside),
            "out_proj.bias": (outside,),
        }
    if isinstance(layer, nn.LayerNorm):
        affine = (*[()] * (len(layer.normalized_shape) - 1), outside)
        return {"weight": affine, "bias": affine}
    return {name: (outside,) for name in ("weight", "bias", "running_mean", "running_var")}
