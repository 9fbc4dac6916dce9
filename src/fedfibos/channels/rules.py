"""What torch's operations do with channels: rules on the factors of their operands' dimensions.

A rule takes the reader of factors, the operation's arguments and its result, and returns the dimensions of the result
(of each tensor of it). An operation without a rule here keeps whole whatever it meets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from fedfibos.channels.factors import Dim, constant, fresh, length
from fedfibos.channels.resize import keeps_group_size

Dims = list[Dim]


class Reader(Protocol):
    """What a rule needs of the trace it belongs to."""

    def dims(self, tensor: Tensor) -> Dims:
        """The dimensions of a tensor as known by now."""

    def unite(self, one: Dim, other: Dim) -> None:
        """Two dimensions are the same channels, or both stay whole."""

    def whole(self, dim: Dim, what: str) -> None:
        """A dimension stays whole for what the operation does with it."""

    def regroup(self, dims: Dims, sizes: Sequence[int]) -> Dims:
        """The same positions in another shape."""

    def pieces(self, dim: Dim, sizes: Sequence[int]) -> Dims:
        """Consecutive pieces of a dimension."""

    def joined(self, dims: Sequence[Dim]) -> Dim:
        """One dimension after another."""


Rule = Callable[..., Any]


def pointwise(reader: Reader, result: Tensor, operands: Sequence[Tensor]) -> Dims:
    """Position by position, with broadcasting."""
    out: Dims = [[] for _ in range(result.dim())]
    for operand in operands:
        for i, dim in enumerate(reversed(reader.dims(operand))):
            if length(dim) > 1:
                if out[-1 - i]:
                    reader.unite(out[-1 - i], dim)
                else:
                    out[-1 - i] = dim
    return [dim or fresh(size) for dim, size in zip(out, result.shape, strict=True)]


def _like_first(reader: Reader, result: Any, x: Tensor, *_: Any, **__: Any) -> Dims:
    return reader.dims(x)


def _uniform(reader: Reader, result: Tensor, *_: Any, **__: Any) -> Dims:
    """One value everywhere: as many channels as whatever it meets."""
    return [fresh(size) for size in result.shape]


def _view(reader: Reader, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Dims:
    return reader.regroup(reader.dims(x), result.shape)


def _strided(reader: Reader, result: Tensor, x: Tensor, *_: Any) -> Dims | None:
    """Only another order in memory is followed."""
    dims = reader.dims(x)
    return dims if [length(dim) for dim in dims] == list(result.shape) else None


def _expand(reader: Reader, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Dims:
    dims = [[] for _ in range(result.dim() - x.dim())] + reader.dims(x)
    return [dim or fresh(size) for dim, size in zip(dims, result.shape, strict=True)]


def _repeat(reader: Reader, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Dims:
    dims = [[] for _ in range(result.dim() - x.dim())] + reader.dims(x)
    return [[*fresh(size // length(dim)), *dim] for dim, size in zip(dims, result.shape, strict=True)]


def _permute(reader: Reader, result: Tensor, x: Tensor, order: Sequence[int]) -> Dims:
    dims = reader.dims(x)
    return [dims[i] for i in order]


def _transpose(reader: Reader, result: Tensor, x: Tensor, a: int = 0, b: int = 1) -> Dims:
    dims = list(reader.dims(x))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return dims


def _squeeze(reader: Reader, result: Tensor, x: Tensor, which: Any = None) -> Dims:
    gone = range(x.dim()) if which is None else [which] if isinstance(which, int) else which
    gone = {d % max(x.dim(), 1) for d in gone}
    return [dim for i, dim in enumerate(reader.dims(x)) if i not in gone or x.shape[i] != 1]


def _unsqueeze(reader: Reader, result: Tensor, x: Tensor, at: int) -> Dims:
    dims = list(reader.dims(x))
    dims.insert(at % result.dim(), [])
    return dims


def _select(reader: Reader, result: Tensor, x: Tensor, at: int, index: int) -> Dims:
    dims = list(reader.dims(x))
    reader.whole(dims.pop(at % x.dim()), "picks single ones by number")
    return dims


def _unbind(reader: Reader, result: Sequence[Tensor], x: Tensor, at: int = 0) -> list[Dims]:
    dims = list(reader.dims(x))
    reader.whole(dims.pop(at % x.dim()), "picks single ones by number")
    return [dims for _ in result]


def _slice(
    reader: Reader, result: Tensor, x: Tensor, at: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Dims:
    at, dims = at % x.dim(), list(reader.dims(x))
    size, kept = x.shape[at], result.shape[at]
    if kept == size:
        return dims
    start = 0 if start is None else min(size, start + size if start < 0 else start)
    if step != 1 or kept == 0:
        reader.whole(dims[at], "takes every n-th of them" if kept else "takes none of them")
        dims[at] = constant(kept)
        return dims
    sizes = [n for n in (start, kept, size - start - kept) if n]
    dims[at] = reader.pieces(dims[at], sizes)[int(start > 0)]
    return dims


def _split(reader: Reader, result: Sequence[Tensor], x: Tensor, _: Any, at: int = 0) -> list[Dims]:
    at, dims = at % x.dim(), reader.dims(x)
    pieces = reader.pieces(dims[at], [piece.shape[at] for piece in result])
    return [[*dims[:at], piece, *dims[at + 1 :]] for piece in pieces]


def _cat(reader: Reader, result: Tensor, tensors: Sequence[Tensor], at: int = 0) -> Dims:
    tensors = [t for t in tensors if t.dim() == result.dim()]  # an empty vector may go with any
    at, all_dims = at % result.dim(), [reader.dims(t) for t in tensors]
    out = list(all_dims[0])
    for dims in all_dims[1:]:
        for i, dim in enumerate(dims):
            if i != at:
                reader.unite(out[i], dim)
    out[at] = reader.joined([dims[at] for t, dims in zip(tensors, all_dims, strict=True) if t.shape[at]])
    return out


def _stack(reader: Reader, result: Tensor, tensors: Sequence[Tensor], at: int = 0) -> Dims:
    out = list(reader.dims(tensors[0]))
    for tensor in tensors[1:]:
        for one, other in zip(out, reader.dims(tensor), strict=True):
            reader.unite(one, other)
    out.insert(at % result.dim(), constant(len(tensors)))
    return out


def _reduce(reader: Reader, result: Any, x: Tensor, which: Any = None, keepdim: Any = False, *_: Any, **named: Any) -> Any:
    first = result if isinstance(result, Tensor) else result[0]
    which = named.get("dim", which)
    every = which is None or which == [] or isinstance(which, bool)
    gone = {d % max(x.dim(), 1) for d in (range(x.dim()) if every else [which] if isinstance(which, int) else which)}
    kept = first.dim() == x.dim()
    dims = [[] if i in gone else dim for i, dim in enumerate(reader.dims(x)) if kept or i not in gone]
    return dims if isinstance(result, Tensor) else [dims for _ in result]


def _norm(reader: Reader, result: Tensor, x: Tensor, _: Any = 2, which: Any = None, *rest: Any, **named: Any) -> Any:
    return _reduce(reader, result, x, which)


def _softmax(reader: Reader, result: Tensor, x: Tensor, *_: Any) -> Dims:
    return reader.dims(x)


def _ordered(position: int, default: int | None = -1) -> Rule:
    """Along one dimension, or several, the order counts: sums so far, sorting, flipping, rolling."""

    def rule(reader: Reader, result: Any, x: Tensor, *rest: Any, **named: Any) -> Any:
        first = result if isinstance(result, Tensor) else result[0]
        along = named.get("dim", rest[position] if len(rest) > position else default)
        dims = list(reader.dims(x))
        for at in range(x.dim()) if along in (None, []) else [along] if isinstance(along, int) else along:
            if dims:
                reader.whole(dims[at], "reads them in their order")
                dims[at] = constant(first.shape[at])
        return dims if isinstance(result, Tensor) else [dims for _ in result]

    return rule


def _spatial(reader: Reader, result: Any, x: Tensor, *_: Any, count: int = 2, **__: Any) -> Any:
    """The last dimensions are positions: pooling, interpolation, padding of them."""
    first = result if isinstance(result, Tensor) else result[0]
    dims = list(reader.dims(x))
    for i in range(x.dim() - count, x.dim()):
        if i >= 0:
            reader.whole(dims[i], "takes them for positions")
            dims[i] = constant(first.shape[i])
    return dims if isinstance(result, Tensor) else [dims for _ in result]


def _pad(reader: Reader, result: Tensor, x: Tensor, pads: Sequence[int], *_: Any) -> Dims:
    dims = list(reader.dims(x))
    for i in range(len(pads) // 2):
        before, after, at = pads[2 * i], pads[2 * i + 1], x.dim() - 1 - i
        if min(before, after) < 0:
            reader.whole(dims[at], "drops the first or last ones")
            dims[at] = constant(result.shape[at])
        elif before or after:
            ends = [[fresh(n)] if n else [] for n in (before, after)]
            dims[at] = reader.joined([*ends[0], dims[at], *ends[1]])
    return dims


def _mm(reader: Reader, result: Tensor, a: Tensor, b: Tensor, *_: Any) -> Dims:
    left, right = reader.dims(a), reader.dims(b)
    reader.unite(left[-1], right[-2] if len(right) > 1 else right[-1])
    if len(left) == len(right) == 3:
        reader.unite(left[0], right[0])
    return [*left[:-1], *(right[-1:] if len(right) > 1 else [])]


def _addmm(reader: Reader, result: Tensor, bias: Tensor, a: Tensor, b: Tensor, *_: Any, **__: Any) -> Dims:
    dims = _mm(reader, result, a, b)
    for one, other in zip(reversed(dims), reversed(reader.dims(bias)), strict=False):
        if length(other) > 1:
            reader.unite(one, other)
    return dims


def _attention(reader: Reader, result: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> list[Dims]:
    """Scores of queries and keys, with a bias or mask, and sums of values; heads of keys may serve several queries."""
    query, key, value = reader.dims(q), reader.dims(k), reader.dims(v)
    for i in range(q.dim() - 2):
        for other, tensor in ((key, k), (value, v)):
            serving = reader.regroup([query[i]], (tensor.shape[i], q.shape[i] // tensor.shape[i]))[0]
            reader.unite(serving, other[i])
    reader.unite(query[-1], key[-1])
    reader.unite(key[-2], value[-2])
    masks = [t for t in (*rest, *named.values()) if isinstance(t, Tensor)]
    for mask in masks:
        scores = [*query[:-1], key[-2]]
        for one, other in zip(reversed(scores), reversed(reader.dims(mask)), strict=False):
            if length(other) > 1:
                reader.unite(one, other)
    rest_dims = [constant(size) for size in result[1].shape] if isinstance(result[1], Tensor) else []
    return [[*query[:-1], value[-1]], rest_dims]


def _convolution(reader: Reader, result: Tensor, x: Tensor, weight: Tensor, bias: Any, *rest: Any) -> Dims:
    transposed, groups = bool(rest[3]), int(rest[5])
    dims, kernel, spatial = list(reader.dims(x)), reader.dims(weight), weight.dim() - 2
    at = x.dim() - spatial - 1
    for dim in (*dims[at + 1 :], *kernel[2:]):
        reader.whole(dim, "takes them for positions")
    inside, (first, second) = dims[at], kernel[:2]
    if groups == 1:
        reader.unite(inside, first if transposed else second)
        outside = second if transposed else first
    else:
        outside = _grouped(reader, (inside, first, second), groups, x.shape[at], result.shape[at], transposed)
    if bias is not None:
        reader.unite(outside, reader.dims(bias)[0])
    out = [*dims[:at], outside, *(constant(size) for size in result.shape[at + 1 :])]
    return out


def _grouped(reader: Reader, dims: Sequence[Dim], groups: int, ins: int, outs: int, transposed: bool) -> Dim:
    """Both sides of a grouped convolution are cut in whole groups."""
    inside, first, second = dims
    group_in, own_in = reader.regroup([inside], (groups, ins // groups))
    side = first if not transposed else None
    if side is None:
        reader.unite(inside, first)
        reader.whole(second, "convolves them in groups")
        reader.whole(own_in, "convolves them in groups")
        return [*group_in, *second]
    group_out, own_out = reader.regroup([side], (groups, outs // groups))
    reader.unite(group_in, group_out)
    for dim in (own_in, own_out, second):
        reader.whole(dim, "convolves them in groups")
    return [*group_out, *own_out]


def _batch_norm(reader: Reader, result: Any, x: Tensor, *rest: Any, **__: Any) -> list[Dims]:
    dims = reader.dims(x)
    for own in rest[:4]:
        if isinstance(own, Tensor):
            reader.unite(dims[1], reader.dims(own)[0])
    return [dims, *[[constant(n) for n in t.shape] for t in result[1:]]]


def _layer_norm(reader: Reader, result: Any, x: Tensor, shape: Sequence[int], *rest: Any) -> Any:
    dims = reader.dims(x)
    for own in rest[:2]:
        if isinstance(own, Tensor):
            for one, other in zip(dims[-len(shape) :], reader.dims(own), strict=True):
                reader.unite(one, other)
    return [dims, *[[constant(n) for n in t.shape] for t in result[1:]]]


def _group_norm(reader: Reader, result: Any, x: Tensor, weight: Any, bias: Any, *rest: Any) -> list[Dims]:
    groups, dims = int(rest[3]), reader.dims(x)
    channels = x.shape[1]
    outer, inner = reader.regroup([dims[1]], (groups, channels // groups))
    reader.whole(inner if keeps_group_size(groups, channels) else outer, "normalises them in groups")
    for own in (weight, bias):
        if own is not None:
            reader.unite(dims[1], reader.dims(own)[0])
    return [dims, *[[constant(n) for n in t.shape] for t in result[1:]]]


def _weight_norm(reader: Reader, result: Any, v: Tensor, g: Tensor, *_: Any) -> list[Dims]:
    dims = reader.dims(v)
    for one, other in zip(dims, reader.dims(g), strict=True):
        if length(other) > 1:
            reader.unite(one, other)
    return [dims, [constant(n) for n in result[1].shape]]


def _embedding(reader: Reader, result: Tensor, weight: Tensor, index: Tensor, *_: Any) -> Dims:
    rows, channels = reader.dims(weight)
    reader.whole(rows, "looks rows up by number")
    return [*reader.dims(index), channels]


def _index_select(reader: Reader, result: Tensor, x: Tensor, at: int, index: Tensor) -> Dims:
    dims = list(reader.dims(x))
    reader.whole(dims[at], "looks them up by number")
    dims[at] = constant(result.shape[at])
    return dims


def _index(reader: Reader, result: Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> Dims:
    dims = reader.dims(x)
    places, taken = [], []
    at = 0
    for index in indices:
        width = 1 if index is None or not index.dtype.is_floating_point and index.dtype != torch.bool else index.dim()
        if index is not None:
            places.append(at)
            taken += list(range(at, at + width))
        at += width
    for i in taken:
        reader.whole(dims[i], "looks them up by number")
    kept = [(i, dim) for i, dim in enumerate(dims) if i not in taken]
    together = taken == list(range(taken[0], taken[-1] + 1)) if taken else True
    head = [dim for i, dim in kept if together and taken and i < taken[0]]
    tail = [dim for i, dim in kept if not (together and taken and i < taken[0])]
    new = [constant(n) for n in result.shape[len(head) : result.dim() - len(tail)]]
    return [*head, *new, *tail]


def _gather(reader: Reader, result: Tensor, x: Tensor, at: int, index: Tensor, *_: Any, **__: Any) -> Dims:
    dims, numbers = reader.dims(x), reader.dims(index)
    for i, dim in enumerate(dims):
        if i == at % max(x.dim(), 1):
            reader.whole(dim, "looks them up by number")
        elif x.shape[i] == index.shape[i]:
            reader.unite(dim, numbers[i])
        else:
            reader.whole(dim, "looks them up by number")
    return numbers


def _pixel_shuffle(reader: Reader, result: Tensor, x: Tensor, factor: int) -> Dims:
    dims = list(reader.dims(x))
    channels, block = reader.regroup([dims[-3]], (result.shape[-3], factor * factor))
    reader.whole(block, "spreads them over positions")
    return [*dims[:-3], channels, *(constant(n) for n in result.shape[-2:])]


def _pixel_unshuffle(reader: Reader, result: Tensor, x: Tensor, factor: int) -> Dims:
    dims = list(reader.dims(x))
    return [*dims[:-3], [*dims[-3], *constant(factor * factor)], *(constant(n) for n in result.shape[-2:])]


def _im2col(reader: Reader, result: Tensor, x: Tensor, kernel: Sequence[int], *_: Any) -> Dims:
    dims = list(reader.dims(x))
    return [*dims[:-3], [*dims[-3], *constant(kernel[0] * kernel[1])], constant(result.shape[-1])]


def _col2im(reader: Reader, result: Tensor, x: Tensor, size: Any, kernel: Sequence[int], *_: Any) -> Dims:
    dims = list(reader.dims(x))
    channels, block = reader.regroup([dims[-2]], (result.shape[-3], kernel[0] * kernel[1]))
    reader.whole(block, "spreads them over positions")
    return [*dims[:-2], channels, *(constant(n) for n in result.shape[-2:])]


def _unfold(reader: Reader, result: Tensor, x: Tensor, at: int, size: int, step: int) -> Dims:
    dims = list(reader.dims(x))
    at %= x.dim()
    reader.whole(dims[at], "takes windows of them")
    dims[at] = constant(result.shape[at])
    return [*dims, constant(size)]


def _lstm(reader: Reader, result: Any, x: Tensor, *rest: Any) -> list[Dims]:
    """One direction of an LSTM: four gates, one after another, of every hidden channel."""
    weights, states = [t for t in rest[:4] if t.numel()], rest[4:6]
    hidden, dims = reader.dims(rest[1])[1], reader.dims(x)
    reader.unite(dims[-1], reader.dims(rest[0])[1])
    for weight in weights:
        for gate in reader.pieces(reader.dims(weight)[0], [length(hidden)] * 4):
            reader.unite(gate, hidden)
    for state in states:
        reader.unite(reader.dims(state)[-1], hidden)
    own = [reader.dims(state) for state in states]
    return [[*dims[:-1], hidden], *own, []]


def _copy(reader: Reader, result: Tensor, target: Tensor, source: Tensor, *_: Any) -> Dims:
    return pointwise(reader, result, [target, source])


def _scatter(reader: Reader, result: Tensor, x: Tensor, at: int, *rest: Any, **__: Any) -> Dims:
    dims = reader.dims(x)
    others = [t for t in rest if isinstance(t, Tensor)]
    for i, dim in enumerate(dims):
        alike = all(t.dim() == x.dim() and t.shape[i] == x.shape[i] for t in others)
        if i == at % max(x.dim(), 1) or not alike:
            reader.whole(dim, "writes to them by number")
        else:
            for tensor in others:
                reader.unite(dim, reader.dims(tensor)[i])
    return dims


def _last_two(reader: Reader, result: Tensor, x: Tensor, *_: Any) -> Dims:
    dims = list(reader.dims(x))
    for dim in dims[-2:]:
        reader.whole(dim, "treats them by their place")
    return dims


def _channel_shuffle(reader: Reader, result: Tensor, x: Tensor, groups: int) -> Dims:
    dims = list(reader.dims(x))
    outer, inner = reader.regroup([dims[1]], (groups, x.shape[1] // groups))
    dims[1] = [*inner, *outer]
    return dims


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return {name: rule for name in names.split()}


RULES: dict[str, Rule] = {
    **_named("view _unsafe_view reshape _reshape_alias _view_copy", _view),
    **_named("as_strided as_strided_", _strided),
    **_named("expand", _expand),
    **_named("repeat", _repeat),
    **_named("permute", _permute),
    **_named("transpose transpose_ swapaxes", _transpose),
    **_named("t", _transpose),
    **_named("squeeze squeeze_", _squeeze),
    **_named("unsqueeze unsqueeze_", _unsqueeze),
    **_named("select", _select),
    **_named("unbind", _unbind),
    **_named("slice", _slice),
    **_named("split split_with_sizes unsafe_split unsafe_split_with_sizes", _split),
    **_named("cat", _cat),
    **_named("stack", _stack),
    **_named(
        "sum mean amax amin var std max min argmax argmin prod any all logsumexp var_mean median nansum count_nonzero",
        _reduce,
    ),
    **_named("linalg_vector_norm norm", _norm),
    **_named("_softmax _log_softmax softmax log_softmax _safe_softmax", _softmax),
    **_named("cumsum cumprod cummax cummin logcumsumexp flip", _ordered(0)),
    **_named("sort argsort", _ordered(0)),
    **_named("roll topk kthvalue", _ordered(1)),
    **_named("mm bmm mv dot", _mm),
    **_named("addmm baddbmm addmv addbmm", _addmm),
    **_named(
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention",
        _attention,
    ),
    **_named("convolution _convolution", _convolution),
    **_named("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update "
             "_batch_norm_no_update cudnn_batch_norm", _batch_norm),
    **_named("native_layer_norm _fused_rms_norm", _layer_norm),
    **_named("native_group_norm", _group_norm),
    **_named("_weight_norm_interface", _weight_norm),
    **_named("embedding", _embedding),
    **_named("index_select", _index_select),
    **_named("index", _index),
    **_named("gather", _gather),
    **_named("scatter scatter_ scatter_add scatter_add_ index_fill index_fill_ index_add index_add_ index_copy", _scatter),
    **_named("tril triu", _last_two),
    **_named("pixel_shuffle", _pixel_shuffle),
    **_named("pixel_unshuffle", _pixel_unshuffle),
    **_named("channel_shuffle native_channel_shuffle", _channel_shuffle),
    **_named("im2col", _im2col),
    **_named("col2im", _col2im),
    **_named("unfold", _unfold),
    **_named("constant_pad_nd", _pad),
    **_named("mkldnn_rnn_layer", _lstm),
    **_named("copy_ copy", _copy),
    **_named(
        "detach detach_ alias clone contiguous lift_fresh lift_fresh_copy _to_copy to native_dropout dropout bernoulli "
        "bernoulli_ zero_ fill_ zeros_like ones_like full_like empty_like rand_like randn_like masked_fill_ "
        "_conj resolve_conj normal_ uniform_",
        _like_first,
    ),
    **_named("zeros ones full empty new_zeros new_ones new_full new_empty empty_strided scalar_tensor", _uniform),
}
"""Name of an operation of ``aten`` -> its rule."""

_SPATIAL = re.compile(r"(pool|upsample|pad|grid_sampler|interpolate).*?([123])d")


def rule_of(name: str) -> Rule | None:
    """The rule of an operation, by its name in ``aten`` without overload."""
    if name in RULES:
        return RULES[name]
    if match := _SPATIAL.search(name):
        count = int(match[2])
        return lambda reader, result, *rest, **named: _spatial(reader, result, *rest, count=count, **named)
    return None
