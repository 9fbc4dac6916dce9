"""What operations do with channels that read or write positions by number: picking, gathering, scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedfibos.channels.factors import constant, length
from fedfibos.channels.rule import Dims, Reader


def index_select(reader: Reader, result: Tensor, x: Tensor, at: int, index: Tensor) -> Dims:
    """Picked positions of one dimension."""
    dims = list(reader.dims(x))
    reader.keep_whole(dims[at], "looks them up by number")
    dims[at] = constant(result.shape[at])
    return dims


def index_rule(reader: Reader, result: Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> Dims:
    """Picked positions, by tensors of numbers."""
    dims = reader.dims(x)
    taken: list[int] = []
    at = 0
    for index in indices:
        width = 1 if index is None or index.dtype != torch.bool else index.dim()
        if index is not None:
            taken += list(range(at, at + width))
        at += width
    for i in taken:
        reader.keep_whole(dims[i], "looks them up by number")
    kept = [(i, dim) for i, dim in enumerate(dims) if i not in taken]
    together = taken == list(range(taken[0], taken[-1] + 1)) if taken else True
    head = [dim for i, dim in kept if together and taken and i < taken[0]]
    tail = [dim for i, dim in kept if not (together and taken and i < taken[0])]
    new = [constant(n) for n in result.shape[len(head) : result.dim() - len(tail)]]
    return [*head, *new, *tail]


def index_put(
    reader: Reader, result: Tensor, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, *_: Any
) -> Dims:
    """Values written to picked positions."""
    picked = index_rule(reader, x[tuple(slice(None) if i is None else i for i in indices)], x, indices)
    for one, other in zip(reversed(picked), reversed(reader.dims(values)), strict=False):
        if length(other) > 1:
            reader.unite(one, other)
    return reader.dims(x)


def gather(reader: Reader, result: Tensor, x: Tensor, at: int, index: Tensor, *_: Any, **__: Any) -> Dims:
    """Picked positions, others at every place."""
    dims, numbers = reader.dims(x), reader.dims(index)
    for i, dim in enumerate(dims):
        if i == at % max(x.dim(), 1):
            reader.keep_whole(dim, "looks them up by number")
        elif x.shape[i] == index.shape[i]:
            reader.unite(dim, numbers[i])
        else:
            reader.keep_whole(dim, "looks them up by number")
    return numbers


def scatter(reader: Reader, result: Tensor, x: Tensor, at: int, *rest: Any, **__: Any) -> Dims:
    """Written at picked positions."""
    dims = reader.dims(x)
    others = [t for t in rest if isinstance(t, Tensor)]
    for i, dim in enumerate(dims):
        alike = all(t.dim() == x.dim() and t.shape[i] == x.shape[i] for t in others)
        if i == at % max(x.dim(), 1) or not alike:
            reader.keep_whole(dim, "writes to them by number")
        else:
            for tensor in others:
                reader.unite(dim, reader.dims(tensor)[i])
    return dims


def index_write(reader: Reader, result: Tensor, x: Tensor, at: int, index: Tensor, *rest: Any, **named: Any) -> Dims:
    """Written, or added, at picked positions of one dimension, the same for all others."""
    dims, at = reader.dims(x), at % max(x.dim(), 1)
    source = next((t for t in (*rest, named.get("source")) if isinstance(t, Tensor) and t.dim() == x.dim()), None)
    for i, dim in enumerate(dims):
        if i == at:
            reader.keep_whole(dim, "writes to them by number")
        elif source is not None and length(reader.dims(source)[i]) > 1:
            reader.unite(dim, reader.dims(source)[i])
    return dims
