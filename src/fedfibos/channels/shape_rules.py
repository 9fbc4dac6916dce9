"""What operations on shapes do with channels: views, pieces, concatenation, sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedfibos.channels.factors import constant, fresh, length
from fedfibos.channels.rule import Dims, Reader, Rule


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


def like_first(reader: Reader, result: Any, x: Tensor, *_: Any, **__: Any) -> Any:
    """The result is as the first operand."""
    return reader.dims(x) if isinstance(result, Tensor) else [reader.dims(x) for _ in result]


def uniform(reader: Reader, result: Tensor, *_: Any, **__: Any) -> Dims:
    """One value everywhere: as many channels as whatever it meets."""
    return [fresh(size) for size in result.shape]


def view(reader: Reader, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Dims:
    """The same positions in another shape."""
    return reader.regroup(reader.dims(x), result.shape)


def strided(reader: Reader, result: Tensor, x: Tensor, *_: Any) -> Dims | None:
    """Only another order in memory is followed."""
    dims = reader.dims(x)
    return dims if [length(dim) for dim in dims] == list(result.shape) else None


def expand(reader: Reader, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Dims:
    """Dimensions of one position repeated: alike everywhere."""
    empty: Dims = [[] for _ in range(result.dim() - x.dim())]
    dims = empty + reader.dims(x)
    return [dim or fresh(size) for dim, size in zip(dims, result.shape, strict=True)]


def repeat_rule(reader: Reader, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Dims:
    """A dimension several times over."""
    empty: Dims = [[] for _ in range(result.dim() - x.dim())]
    dims = empty + reader.dims(x)
    return [[*fresh(size // length(dim)), *dim] for dim, size in zip(dims, result.shape, strict=True)]


def permute(reader: Reader, result: Tensor, x: Tensor, order: Sequence[int]) -> Dims:
    """Dimensions in another order."""
    dims = reader.dims(x)
    return [dims[i] for i in order]


def transpose(reader: Reader, result: Tensor, x: Tensor, a: int = 0, b: int = 1) -> Dims:
    """Two dimensions change places."""
    dims = list(reader.dims(x))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return dims


def squeeze(reader: Reader, result: Tensor, x: Tensor, which: Any = None) -> Dims:
    """Dimensions of one position dropped."""
    gone = range(x.dim()) if which is None else [which] if isinstance(which, int) else which
    gone = {d % max(x.dim(), 1) for d in gone}
    return [dim for i, dim in enumerate(reader.dims(x)) if i not in gone or x.shape[i] != 1]


def unsqueeze(reader: Reader, result: Tensor, x: Tensor, at: int) -> Dims:
    """A dimension of one position more."""
    dims = list(reader.dims(x))
    dims.insert(at % result.dim(), [])
    return dims


def select(reader: Reader, result: Tensor, x: Tensor, at: int, index: int) -> Dims:
    """One position of a dimension."""
    dims = list(reader.dims(x))
    reader.keep_whole(dims.pop(at % x.dim()), "picks single ones by number")
    return dims


def unbind(reader: Reader, result: Sequence[Tensor], x: Tensor, at: int = 0) -> list[Dims]:
    """Every position of a dimension by itself."""
    dims = list(reader.dims(x))
    reader.keep_whole(dims.pop(at % x.dim()), "picks single ones by number")
    return [dims for _ in result]


def slice_rule(
    reader: Reader, result: Tensor, x: Tensor, at: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Dims:
    """A run of positions."""
    at, dims = at % x.dim(), list(reader.dims(x))
    size, kept = x.shape[at], result.shape[at]
    if kept == size:
        return dims
    start = 0 if start is None else min(size, start + size if start < 0 else start)
    if step != 1 or kept == 0:
        reader.keep_whole(dims[at], "takes every n-th of them" if kept else "takes none of them")
        dims[at] = constant(kept)
        return dims
    sizes = [n for n in (start, kept, size - start - kept) if n]
    dims[at] = reader.pieces(dims[at], sizes)[int(start > 0)]
    return dims


def split(reader: Reader, result: Sequence[Tensor], x: Tensor, _: Any, at: int = 0) -> list[Dims]:
    """Pieces one after another."""
    at, dims = at % x.dim(), reader.dims(x)
    pieces = reader.pieces(dims[at], [piece.shape[at] for piece in result])
    return [[*dims[:at], piece, *dims[at + 1 :]] for piece in pieces]


def cat(reader: Reader, result: Tensor, tensors: Sequence[Tensor], at: int = 0) -> Dims:
    """Dimensions one after another."""
    tensors = [t for t in tensors if t.dim() == result.dim()]  # an empty vector may go with any
    at, all_dims = at % result.dim(), [reader.dims(t) for t in tensors]
    out = list(all_dims[0])
    for dims in all_dims[1:]:
        for i, dim in enumerate(dims):
            if i != at:
                reader.unite(out[i], dim)
    out[at] = reader.join([dims[at] for t, dims in zip(tensors, all_dims, strict=True) if t.shape[at]])
    return out


def stack(reader: Reader, result: Tensor, tensors: Sequence[Tensor], at: int = 0) -> Dims:
    """Tensors along a new dimension."""
    out = list(reader.dims(tensors[0]))
    for tensor in tensors[1:]:
        for one, other in zip(out, reader.dims(tensor), strict=True):
            reader.unite(one, other)
    out.insert(at % result.dim(), constant(len(tensors)))
    return out


def reduce_rule(
    reader: Reader, result: Any, x: Tensor, which: Any = None, keepdim: Any = False, *_: Any, **named: Any
) -> Any:
    """Sums, means, extremes: they take no notice of the order."""
    first = result if isinstance(result, Tensor) else result[0]
    which = named.get("dim", which)
    every = which is None or which == [] or isinstance(which, bool)
    gone = {d % max(x.dim(), 1) for d in (range(x.dim()) if every else [which] if isinstance(which, int) else which)}
    kept = first.dim() == x.dim()
    dims = [[] if i in gone else dim for i, dim in enumerate(reader.dims(x)) if kept or i not in gone]
    return dims if isinstance(result, Tensor) else [dims for _ in result]


def norm_rule(
    reader: Reader, result: Tensor, x: Tensor, _: Any = 2, which: Any = None, *rest: Any, **named: Any
) -> Any:
    """A norm, along some dimensions."""
    return reduce_rule(reader, result, x, which)


def softmax(reader: Reader, result: Tensor, x: Tensor, *_: Any) -> Dims:
    """Softmax takes no notice of the order."""
    return reader.dims(x)


def ordered(position: int, default: int | None = -1) -> Rule:
    """Along one dimension, or several, the order counts: sums so far, sorting, flipping, rolling."""

    def rule(reader: Reader, result: Any, x: Tensor, *rest: Any, **named: Any) -> Any:
        first = result if isinstance(result, Tensor) else result[0]
        along = named.get("dim", rest[position] if len(rest) > position else default)
        dims = list(reader.dims(x))
        for at in range(x.dim()) if along in (None, []) else [along] if isinstance(along, int) else along:
            if dims:
                reader.keep_whole(dims[at], "reads them in their order")
                dims[at] = constant(first.shape[at])
        return dims if isinstance(result, Tensor) else [dims for _ in result]

    return rule


def pad_rule(reader: Reader, result: Tensor, x: Tensor, pads: Sequence[int], *_: Any) -> Dims:
    """Zeros before and after."""
    dims = list(reader.dims(x))
    for i in range(len(pads) // 2):
        before, after, at = pads[2 * i], pads[2 * i + 1], x.dim() - 1 - i
        if min(before, after) < 0:
            reader.keep_whole(dims[at], "drops the first or last ones")
            dims[at] = constant(result.shape[at])
        elif before or after:
            ends = [[fresh(n)] if n else [] for n in (before, after)]
            dims[at] = reader.join([*ends[0], dims[at], *ends[1]])
    return dims


def unfold(reader: Reader, result: Tensor, x: Tensor, at: int, size: int, step: int) -> Dims:
    """Windows along a dimension."""
    dims = list(reader.dims(x))
    at %= x.dim()
    reader.keep_whole(dims[at], "takes windows of them")
    dims[at] = constant(result.shape[at])
    return [*dims, constant(size)]


def glu(reader: Reader, result: Tensor, x: Tensor, at: int = -1) -> Dims:
    """One half of the channels scaled by the other."""
    dims = list(reader.dims(x))
    value, gate = reader.pieces(dims[at], [x.shape[at] // 2] * 2)
    reader.unite(value, gate)
    dims[at] = value
    return dims


def transformed(reader: Reader, result: Tensor, x: Tensor, along: Sequence[int], *_: Any) -> Dims:
    """Fourier transforms: along some dimensions, each of the others by itself."""
    dims = list(reader.dims(x))
    for at in along:
        reader.keep_whole(dims[at], "transforms them together")
        dims[at] = constant(result.shape[at])
    return dims


def as_complex(reader: Reader, result: Tensor, x: Tensor) -> Dims:
    """Pairs of positions as complex numbers."""
    *dims, pair = reader.dims(x)
    reader.keep_whole(pair, "takes them for complex numbers")
    return dims


def as_real(reader: Reader, result: Tensor, x: Tensor) -> Dims:
    """Complex numbers as pairs of positions."""
    return [*reader.dims(x), constant(2)]


def of_all(reader: Reader, result: Tensor, *operands: Any, **_: Any) -> Dims:
    """Position by position, of an operation that torch does not say it of."""
    return pointwise(reader, result, [operand for operand in operands if isinstance(operand, Tensor)])


def copy_rule(reader: Reader, result: Tensor, target: Tensor, source: Tensor, *_: Any) -> Dims:
    """One tensor written into another."""
    return pointwise(reader, result, [target, source])


def last_two(reader: Reader, result: Tensor, x: Tensor, *_: Any) -> Dims:
    """A triangle of the last two dimensions."""
    dims = list(reader.dims(x))
    for dim in dims[-2:]:
        reader.keep_whole(dim, "treats them by their place")
    return dims


def diagonal(reader: Reader, result: Tensor, x: Tensor, offset: int = 0, a: int = 0, b: int = 1) -> Dims:
    """The diagonal of two dimensions: the same channels along both, or none."""
    dims = list(reader.dims(x))
    one, other = dims[a], dims[b]
    rest = [dim for i, dim in enumerate(dims) if i not in (a % x.dim(), b % x.dim())]
    if offset or x.shape[a] != x.shape[b]:
        for dim in (one, other):
            reader.keep_whole(dim, "treats them by their place")
        return [*rest, constant(result.shape[-1])]
    reader.unite(one, other)
    return [*rest, one]


def diag_embed(reader: Reader, result: Tensor, x: Tensor, offset: int = 0, a: int = -2, b: int = -1) -> Dims | None:
    """Channels along the diagonal of two new dimensions, the last ones."""
    if offset or {a % result.dim(), b % result.dim()} != {result.dim() - 2, result.dim() - 1}:
        return None
    return [*reader.dims(x), reader.dims(x)[-1]]
