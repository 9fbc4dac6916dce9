"""Functions of torch that take sizes: what the sizes of a call belong to, and the same call with others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedfibos.channels.factors import Dim, align

Place = tuple[Dim, int, int, int]
"""Positions of a dimension from one to another, and which sizes it is one of that together are as many as before."""

Seen = tuple[Place | None, ...]
"""What the sizes of a call belong to, one by one: positions of a dimension from one to another; None: of no tensor."""

Range = tuple[int, int] | tuple[int, int, int]
"""Positions in a narrower copy; a third number is the one size of the code that they stand for."""

Ranges = tuple[Range | None, ...]
"""The same positions in a narrower copy; None: as the code says."""


@dataclass(frozen=True)
class Sized:
    """A function of torch that takes sizes.

    Attributes:
        note: What the sizes of a call belong to: of the dimensions of a tensor, the call's result and arguments.
        apply: The call's arguments with the sizes of the narrower tensors.
        lengths: Whether its sizes are lengths of dimensions, each by itself.
    """

    note: Callable[[Callable[[Tensor], list[Dim]], Any, Sequence[Any], Mapping[str, Any]], Seen | None]
    apply: Callable[[Sequence[Any], Mapping[str, Any], Ranges], tuple[Sequence[Any], Mapping[str, Any]]]
    lengths: bool = False


def _shape_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    if not isinstance(result, Tensor) or any(isinstance(value, torch.dtype) for value in args):
        return None
    old = args[0].shape if args and isinstance(args[0], Tensor) else result.shape
    group = {i: n for n, (_, new) in enumerate(align(old, result.shape)) for i in new}
    return tuple(
        (dim, 0, n, group.get(i, i)) for i, (dim, n) in enumerate(zip(dims(result), result.shape, strict=True))
    )


def _lengths(sizes: Sequence[Any], ranges: Ranges) -> list[Any]:
    """Sizes as they are now; -1, what is left, stays."""
    return [
        size if own is None or size == -1 or own[2:] not in ((), (size,)) else own[1] - own[0]
        for size, own in zip(sizes, ranges, strict=True)
    ]


def _narrowed(x: Any, sizes: Sequence[Any], ranges: Ranges) -> list[Any]:
    """Sizes as they are now, of a tensor that has as many positions.

    Examples and channels in one dimension are another number for every batch: then the full model's share of it counts.
    """
    now = _lengths(sizes, ranges)
    if not isinstance(x, Tensor) or -1 in now or math.prod(now) == x.numel():
        return now
    shares = [
        size if own is None or len(own) < 3 else size * (own[1] - own[0]) // own[2]
        for size, own in zip(now, ranges, strict=True)
    ]
    return shares if math.prod(shares) == x.numel() else now


def _fits(x: Any, sizes: Sequence[Any], ranges: Ranges) -> bool:
    """Whether the code works out sizes itself, as of examples and channels in one dimension.

    Its number for half of the channels of twice as many examples is that of the full model, by chance.
    """
    if all(own is None or len(own) < 3 for own in ranges) or not isinstance(x, Tensor) or -1 in sizes:
        return False
    return bool(math.prod(sizes) == x.numel())


def _shape_arguments(first: int, word: str) -> Any:
    """Sizes after ``first`` other arguments, one by one or as a sequence."""

    def apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
        if word in kwargs:
            if first and _fits(args[0], kwargs[word], ranges):
                return args, kwargs
            return args, {**kwargs, word: _narrowed(args[0] if first else None, kwargs[word], ranges)}
        sizes, x = args[first:], args[0] if first else None
        if first and _fits(args[0], sizes[0] if isinstance(sizes[0], Sequence) else sizes, ranges):
            return args, kwargs
        if isinstance(sizes[0], Sequence):
            return (*args[:first], _narrowed(x, sizes[0], ranges), *sizes[1:]), kwargs
        return (*args[:first], *_narrowed(x, sizes, ranges)), kwargs  # numbers, or tensors of one

    return apply


def _unflatten_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    x, at = args[0], args[1] if len(args) > 1 else kwargs["dim"]
    sizes = args[2] if len(args) > 2 else kwargs["sizes"]
    at %= x.dim()
    return (x, at, _lengths(sizes, ranges[at : at + len(sizes)])), {}


def _repeat_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    x, sizes = args[0], args[1:] if isinstance(args[1], int) else args[1]
    own = (1,) * (len(sizes) - x.dim()) + tuple(x.shape)
    times = [n if r is None else (r[1] - r[0]) // size for n, r, size in zip(sizes, ranges, own, strict=True)]
    return (x, times), kwargs


def _along(args: Sequence[Any], kwargs: Mapping[str, Any], position: int) -> int:
    return int(args[position] if len(args) > position else kwargs.get("dim", 0))


def _pieces_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    x, at = args[0], _along(args, kwargs, 2)
    ends = list(itertools.accumulate(piece.shape[at] for piece in result))
    # A dimension after the call, so that it is cut where the pieces begin.
    return tuple((dims(x)[at], a, b, 0) for a, b in zip([0, *ends], ends, strict=False))


def _pieces_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    """A call of any of these as one of ``torch.split`` by lengths."""
    sizes = [0 if own is None else own[1] - own[0] for own in ranges]
    return (args[0], sizes), {"dim": _along(args, kwargs, 2)}


def _narrow_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Tensor, dimension, start and length, by position or by name."""
    return [*args, *(kwargs[word] for word in ("dim", "start", "length")[len(args) - 1 :])]


def _narrow_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    x, at, start, size = _narrow_arguments(args, kwargs)
    start = int(start) % x.shape[at]
    return ((dims(x)[at], start, start + int(size), 0),)


def _narrow_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    x, at, start, size = _narrow_arguments(args, kwargs)
    start, stop = (ranges[0] or (start, start + size))[:2]
    return (x, at, start, stop - start), {}


def _index_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    x, index = args[:2]
    items = index if isinstance(index, tuple) else (index,)
    seen: list[Place | None] = []
    used = sum(_taken(item) for item in items if item is not Ellipsis)
    at = 0
    for item in items:
        if isinstance(item, slice) and item.step in (None, 1) and at < x.dim():
            start, stop, _ = item.indices(x.shape[at])
            cut = (start, stop) != (0, x.shape[at]) and start < stop
            seen.append((dims(x)[at], start, stop, at) if cut else None)
        else:
            seen.append(None)
        at += x.dim() - used if item is Ellipsis else _taken(item)
    return tuple(seen)


def _taken(item: Any) -> int:
    """Dimensions that one item of an index stands for."""
    if item is None or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype == torch.bool else 1


def _index_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    x, index, *value = args
    items = index if isinstance(index, tuple) else (index,)
    new = tuple(item if own is None else slice(own[0], own[1]) for item, own in zip(items, ranges, strict=True))
    return (x, new if isinstance(index, tuple) else new[0], *value), kwargs


def _normalised_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    x, shape = args[0], args[1] if len(args) > 1 else kwargs["normalized_shape"]
    return tuple((dim, 0, size, i) for i, (dim, size) in enumerate(zip(dims(x)[-len(shape) :], shape, strict=True)))


def _pad_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    pads, own = args[1] if len(args) > 1 else kwargs["pad"], dims(result)
    seen: list[Place | None] = []
    for i, pad in enumerate(pads):
        at = result.dim() - 1 - i // 2
        size = result.shape[at]
        ends = (0, pad) if i % 2 == 0 else (size - pad, size)
        seen.append((own[at], *ends, i) if pad > 0 else None)
    return tuple(seen)


def _pad_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    pads = _lengths(args[1] if len(args) > 1 else kwargs["pad"], ranges)
    return (args[0], pads, *args[2:]), {k: v for k, v in kwargs.items() if k != "pad"}


def _groups_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    x, groups = args[0], args[1] if len(args) > 1 else kwargs["num_groups"]
    return ((dims(x)[1], 0, x.shape[1] // groups, 0),)


def _groups_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    (own,) = ranges
    groups = args[1] if own is None else args[0].shape[1] // (own[1] - own[0])
    return (args[0], groups, *args[2:]), {k: v for k, v in kwargs.items() if k != "num_groups"}


def _groups_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The groups of a call of a convolution: the seventh argument, of transposed ones too."""
    return args[6] if len(args) > 6 else kwargs.get("groups", 1)


def _convolution_seen(dims: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Seen | None:
    x, groups = args[0], _groups_of(args, kwargs)
    at = x.dim() - args[1].dim() + 1
    return None if groups == 1 else ((dims(x)[at], 0, x.shape[at] // groups, 0),)


def _convolution_apply(args: Sequence[Any], kwargs: Mapping[str, Any], ranges: Ranges) -> Any:
    (own,) = ranges
    x = args[0]
    groups = _groups_of(args, kwargs) if own is None else x.shape[x.dim() - args[1].dim() + 1] // (own[1] - own[0])
    if len(args) > 6:
        return (*args[:6], groups, *args[7:]), kwargs
    return args, {**kwargs, "groups": groups}


_VIEW = Sized(_shape_seen, _shape_arguments(1, "size"), lengths=True)
_RESHAPE = Sized(_shape_seen, _shape_arguments(1, "shape"), lengths=True)
_NEW = Sized(_shape_seen, _shape_arguments(1, "size"), lengths=True)
_FACTORY = Sized(_shape_seen, _shape_arguments(0, "size"), lengths=True)
_CONVOLUTION = Sized(_convolution_seen, _convolution_apply)
PIECES = Sized(_pieces_seen, _pieces_apply)

SIZED: dict[str, Sized] = {
    **dict.fromkeys(("view", "expand", "broadcast_to"), _VIEW),
    "reshape": _RESHAPE,
    **dict.fromkeys(("new", "new_zeros", "new_ones", "new_empty", "new_full"), _NEW),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "rand", "randn"), _FACTORY),
    **dict.fromkeys(("split", "chunk", "split_with_sizes", "tensor_split"), PIECES),
    "unflatten": Sized(_shape_seen, _unflatten_apply, lengths=True),
    **dict.fromkeys(("repeat", "tile"), Sized(_shape_seen, _repeat_apply)),
    "narrow": Sized(_narrow_seen, _narrow_apply),
    **dict.fromkeys(("__getitem__", "__setitem__"), Sized(_index_seen, _index_apply)),
    **dict.fromkeys(("layer_norm", "rms_norm"), Sized(_normalised_seen, _shape_arguments(1, "normalized_shape"))),
    "pad": Sized(_pad_seen, _pad_apply),
    "group_norm": Sized(_groups_seen, _groups_apply),
    **dict.fromkeys(
        (f"conv{way}{n}d" for way in ("", "_transpose") for n in (1, 2, 3)),
        Sized(_convolution_seen, _convolution_apply),
    ),
}
"""Functions of torch whose sizes are noted, by name."""


def numbers(values: Any) -> list[Any]:
    """The numbers among arguments."""
    if isinstance(values, Mapping):
        values = values.values()
    out: list[Any] = []
    for value in values:
        if isinstance(value, (tuple, list)):
            out += numbers(value)
        elif isinstance(value, slice):
            out.append((value.start or 0, value.stop))
        elif isinstance(value, int):
            out.append(value)
    return out


def own_pieces(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[int] | None:
    """The lengths of the pieces that a call asks for; None where it fails."""
    try:
        return [piece.shape[_along(args, kwargs, 2)] for piece in func(*args, **kwargs)]
    except RuntimeError:
        return None
