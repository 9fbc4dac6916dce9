"""What the operations of layers do with channels: products of matrices, attention, convolution, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedfibos.channels.factors import Dim, constant, has_positions, length
from fedfibos.channels.resize import keeps_group_size
from fedfibos.channels.rule import Dims, Reader


def mm(reader: Reader, result: Tensor, a: Tensor, b: Tensor, *_: Any) -> Dims:
    """Products of matrices, one by one in a batch."""
    left, right = reader.dims(a), reader.dims(b)
    reader.unite(left[-1], right[-2] if len(right) > 1 else right[-1])
    if len(left) == len(right) == 3:
        reader.unite(left[0], right[0])
    return [*left[:-1], *(right[-1:] if len(right) > 1 else [])]


def addmm(reader: Reader, result: Tensor, bias: Tensor, a: Tensor, b: Tensor, *_: Any, **__: Any) -> Dims:
    """Products of matrices, and a bias."""
    dims = mm(reader, result, a, b)
    for one, other in zip(reversed(dims), reversed(reader.dims(bias)), strict=False):
        if length(other) > 1:
            reader.unite(one, other)
    return dims


def grouped_mm(reader: Reader, result: Tensor, a: Tensor, b: Tensor, *_: Any, **__: Any) -> Dims | None:
    """Rows of one matrix, in groups: each group times a matrix of its own (experts). Rows are whole words of memory."""
    if a.dim() != 2 or b.dim() != 3:
        return None
    left, right = reader.dims(a), reader.dims(b)
    reader.unite(left[1], right[1])
    reader.keep_whole(right[0], "takes them for groups")
    word = WORD // a.element_size()
    for dim in (left[1], right[2]):
        if length(dim) % word == 0:
            reader.keep_whole(reader.regroup([dim], (length(dim) // word, word))[1], "reads them by words")
    return [left[0], right[2]]


WORD = 16
"""Bytes that the kernel of grouped products reads at once."""


def distances(reader: Reader, result: Tensor, a: Tensor, b: Tensor, *_: Any) -> Dims:
    """Distances of all rows of one tensor from all of another."""
    left, right = reader.dims(a), reader.dims(b)
    reader.unite(left[-1], right[-1])
    for one, other in zip(left[:-2], right[:-2], strict=False):
        reader.unite(one, other)
    return [*left[:-1], right[-2]]


def attention(reader: Reader, result: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> list[Dims]:
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
        for score, own in zip(reversed(scores), reversed(reader.dims(mask)), strict=False):
            if length(own) > 1:
                reader.unite(score, own)
    rest_dims = [constant(size) for size in result[1].shape] if isinstance(result[1], Tensor) else []
    return [[*query[:-1], value[-1]], rest_dims]


def convolution(reader: Reader, result: Tensor, x: Tensor, weight: Tensor, bias: Any, *rest: Any) -> Dims:
    """Convolutions, transposed and grouped ones too."""
    transposed, groups = bool(rest[3]), int(rest[5])
    dims, kernel, spatial = list(reader.dims(x)), reader.dims(weight), weight.dim() - 2
    at = x.dim() - spatial - 1
    places = [constant(size) for size in result.shape[at + 1 :]]
    if max(weight.shape[2:]) == max(rest[0]) == 1 and not any(rest[1]) and result.shape[at + 1 :] == x.shape[at + 1 :]:
        places = dims[at + 1 :]  # of kernels of one position each stays by itself
    else:
        for i, (dim, own) in enumerate(zip(dims[at + 1 :], kernel[2:], strict=True)):
            if x.shape[at + 1 + i] == weight.shape[2 + i] and not rest[1][i] and dim and not has_positions(dim):
                reader.unite(dim, own)  # one window, as wide as there are channels: a sum over them
                continue
            reader.keep_whole([*dim, *own], "takes them for positions")
    inside, (first, second) = dims[at], kernel[:2]
    if groups == 1:
        reader.unite(inside, first if transposed else second)
        outside = second if transposed else first
    else:
        outside = grouped(reader, (inside, first, second), groups, x.shape[at], result.shape[at], transposed)
    if bias is not None:
        reader.unite(outside, reader.dims(bias)[0])
    return [*dims[:at], outside, *places]


def grouped(reader: Reader, dims: Sequence[Dim], groups: int, ins: int, outs: int, transposed: bool) -> Dim:
    """A grouped convolution is cut in whole groups, or, where all of them stay, within each alike."""
    inside, first, second = dims
    group_in, own_in = reader.regroup([inside], (groups, ins // groups))
    group_first, own_first = reader.regroup([first], (groups, length(first) // groups))
    reader.unite(group_in, group_first)
    own_out = second if transposed else own_first
    reader.unite(own_in, own_first if transposed else second)
    return [*group_in, *own_out]


def batch_norm(reader: Reader, result: Any, x: Tensor, *rest: Any, **__: Any) -> list[Dims]:
    """Batch norm: by channel, with its statistics."""
    dims = reader.dims(x)
    for own in rest[:4]:
        if isinstance(own, Tensor):
            reader.unite(dims[1], reader.dims(own)[0])
    return [dims, *[[constant(n) for n in t.shape] for t in result[1:]]]


def layer_norm(reader: Reader, result: Any, x: Tensor, shape: Sequence[int], *rest: Any) -> Any:
    """LayerNorm and RMSNorm, over the last dimensions."""
    dims = reader.dims(x)
    for own in rest[:2]:
        if isinstance(own, Tensor):
            for one, other in zip(dims[-len(shape) :], reader.dims(own), strict=True):
                reader.unite(one, other)
    return [dims, *[[constant(n) for n in t.shape] for t in result[1:]]]


def group_norm(reader: Reader, result: Any, x: Tensor, weight: Any, bias: Any, *rest: Any) -> list[Dims]:
    """GroupNorm: see :func:`fedfibos.channels.resize.keeps_group_size`."""
    groups, dims = int(rest[3]), reader.dims(x)
    channels = x.shape[1]
    outer, inner = reader.regroup([dims[1]], (groups, channels // groups))
    reader.keep_whole(inner if keeps_group_size(groups, channels) else outer, "normalises them in groups")
    for own in (weight, bias):
        if own is not None:
            reader.unite(dims[1], reader.dims(own)[0])
    return [dims, *[[constant(n) for n in t.shape] for t in result[1:]]]


def weight_norm(reader: Reader, result: Any, v: Tensor, g: Tensor, *_: Any) -> list[Dims]:
    """A weight as length and direction."""
    dims = reader.dims(v)
    for one, other in zip(dims, reader.dims(g), strict=True):
        if length(other) > 1:
            reader.unite(one, other)
    return [dims, [constant(n) for n in result[1].shape]]


def lstm(reader: Reader, result: Any, x: Tensor, *rest: Any) -> list[Dims]:
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


def pack_padded(reader: Reader, result: Any, x: Tensor, *_: Any) -> list[Dims]:
    """Steps of texts of several lengths, one after another: two dimensions of positions become one."""
    return [[constant(len(result[0])), *_beside_positions(reader, x, 2)], [constant(len(result[1]))]]


def pad_packed(reader: Reader, result: Any, x: Tensor, *_: Any) -> list[Dims]:
    """The reverse of :func:`pack_padded`."""
    positions = [constant(size) for size in result[0].shape[:2]]
    return [[*positions, *_beside_positions(reader, x, 1)], [constant(len(result[1]))]]


def _beside_positions(reader: Reader, x: Tensor, count: int) -> Dims:
    """The dimensions after the first ones, which are positions."""
    dims = reader.dims(x)
    for dim in dims[:count]:
        reader.keep_whole(dim, "takes them for positions")
    return list(dims[count:])


def embedding(reader: Reader, result: Tensor, weight: Tensor, index: Tensor, *_: Any) -> Dims:
    """Rows of a table by number."""
    rows, channels = reader.dims(weight)
    reader.keep_whole(rows, "looks rows up by number")
    return [*reader.dims(index), channels]


def embedding_bag(reader: Reader, result: Any, weight: Tensor, *_: Any) -> list[Dims]:
    """Sums, means or maxima of rows of a table."""
    rows, channels = reader.dims(weight)
    reader.keep_whole(rows, "looks rows up by number")
    others = [[constant(size) for size in tensor.shape] for tensor in result[1:]]
    if others[-1]:  # of maxima, the rows that they are from
        others[-1][-1:] = [channels]
    return [[constant(len(result[0])), channels], *others]


def embedding_renorm(reader: Reader, result: Tensor, weight: Tensor, *_: Any) -> Dims:
    """Rows of a table that are made shorter where they are long."""
    dims = reader.dims(weight)
    reader.keep_whole(dims[0], "looks rows up by number")
    return dims


def spatial(reader: Reader, result: Any, x: Tensor, *rest: Any, count: int = 2, windows: bool = True, **_: Any) -> Any:
    """The last dimensions are positions: pooling, interpolation, padding of them.

    A second tensor of as many channels has something to say of each of them: where its maxima were, in unpooling.

    Args:
        reader: As of every rule.
        result: As of every rule.
        x: What is pooled.
        *rest: Of pooling, the sizes of its windows first.
        count: Number of dimensions.
        windows: Whether a dimension that keeps its size may have been mixed all the same.
    """
    first = result if isinstance(result, Tensor) else result[0]
    dims = list(reader.dims(x))
    for other in rest:
        if isinstance(other, Tensor) and other.dim() == x.dim() and other.shape[:-count] == x.shape[:-count]:
            for one, own in zip(dims[:-count], reader.dims(other), strict=False):
                reader.unite(one, own)
    kernel = [1] * count if not windows else rest[0] if rest and isinstance(rest[0], Sequence) else [0]
    for i in range(x.dim() - count, x.dim()):
        alone = kernel[(i - x.dim() + count) % len(kernel)] == 1 and x.shape[i] == first.shape[i]
        if i >= 0 and not alone:
            reader.keep_whole(dims[i], "takes them for positions")
            dims[i] = constant(first.shape[i])
    return dims if isinstance(result, Tensor) else [dims for _ in result]


def pixel_shuffle(reader: Reader, result: Tensor, x: Tensor, factor: int) -> Dims:
    """Channels spread over positions."""
    dims = list(reader.dims(x))
    channels, block = reader.regroup([dims[-3]], (result.shape[-3], factor * factor))
    reader.keep_whole(block, "spreads them over positions")
    return [*dims[:-3], channels, *(constant(n) for n in result.shape[-2:])]


def pixel_unshuffle(reader: Reader, result: Tensor, x: Tensor, factor: int) -> Dims:
    """Positions gathered into channels."""
    dims = list(reader.dims(x))
    return [*dims[:-3], [*dims[-3], *constant(factor * factor)], *(constant(n) for n in result.shape[-2:])]


def channel_shuffle(reader: Reader, result: Tensor, x: Tensor, groups: int) -> Dims:
    """Channels of groups interleaved."""
    dims = list(reader.dims(x))
    outer, inner = reader.regroup([dims[1]], (groups, x.shape[1] // groups))
    dims[1] = [*inner, *outer]
    return dims


def im2col(reader: Reader, result: Tensor, x: Tensor, kernel: Sequence[int], *_: Any) -> Dims:
    """Windows of an image, as channels."""
    dims = list(reader.dims(x))
    return [*dims[:-3], [*dims[-3], *constant(kernel[0] * kernel[1])], constant(result.shape[-1])]


def col2im(reader: Reader, result: Tensor, x: Tensor, size: Any, kernel: Sequence[int], *_: Any) -> Dims:
    """Windows put together to an image."""
    dims = list(reader.dims(x))
    channels, block = reader.regroup([dims[-2]], (result.shape[-3], kernel[0] * kernel[1]))
    reader.keep_whole(block, "spreads them over positions")
    return [*dims[:-2], channels, *(constant(n) for n in result.shape[-2:])]


def trilinear(reader: Reader, result: Tensor, a: Tensor, w: Tensor, b: Tensor, *rest: Any) -> Dims:
    """``nn.Bilinear``: three tensors multiplied over one another's dimensions, and summed."""
    *expand, summed = rest[:4]
    out: Dims = []
    for tensor, new in zip((a, w, b), expand, strict=True):
        dims = list(reader.dims(tensor))
        for at in sorted(new):
            dims.insert(at, [])
        out = out or [[] for _ in dims]
        for i, dim in enumerate(dims):
            if out[i] and dim:
                reader.unite(out[i], dim)
            out[i] = out[i] or dim
    return [dim for i, dim in enumerate(out) if i not in summed]
