"""FedBRB's grid: the blocks of a tensor's dimensions, the order in which they roll, and the broadcast between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedfibos.channels.axes import Axes, Dimension
from fedfibos.params import Layout
from fedfibos.submodel import Slice, Submodel
from fedfibos.types import State


@dataclass(frozen=True)
class Block(Slice):
    """A slice of one block of every tensor, which knows whose place it takes in all other blocks.

    Attributes:
        sources: int64: for every tensor in layout order and each of its dimensions, the held position that stands
            for each of its positions; one after another, so of length Σ (sum of the tensor's shape).
    """

    sources: Tensor = field(kw_only=True)


def block_channels(size: int, width: int, number: int) -> Tensor:
    """The channels of one block of an axis, int64, shape ``(width,)``.

    Block p covers channels pb, ..., pb + b − 1; the last is shifted back to fit. Local channel i is the block's channel
    that is i mod b: a local channel plays the same part whichever block is trained.

    Args:
        size: C, channels of the axis.
        width: b, channels of a block.
        number: p, from 0 to ⌈C/b⌉ − 1.

    Example:
        >>> [block_channels(5, 2, p).tolist() for p in range(3)]
        [[0, 1], [2, 3], [4, 3]]
    """
    start = min(number * width, size - width)
    return start + (torch.arange(width) - start) % width


def num_blocks(axes: Axes, widths: Mapping[str, int]) -> dict[str, int]:
    """Blocks along every axis: ⌈C/b⌉."""
    return {axis: -(-axes.sizes[axis] // width) for axis, width in widths.items()}


def by_role(axes: Axes, inputs: Mapping[str, frozenset[int]]) -> Axes:
    """The same table with two axes for each: tensors' input dimensions carry :func:`input_axis`, the others the axis.

    Args:
        axes: The table.
        inputs: Name of a tensor -> its input dimensions.
    """

    def renamed(dim: Dimension) -> Dimension:
        return tuple(part if part.axis is None else replace(part, axis=input_axis(part.axis)) for part in dim)

    dims = {
        name: tuple(renamed(dim) if i in inputs.get(name, ()) else dim for i, dim in enumerate(entry))
        for name, entry in axes.dims.items()
    }
    sizes = {**axes.sizes, **{input_axis(axis): size for axis, size in axes.sizes.items()}}
    return replace(axes, sizes=sizes, dims=dims)


def input_axis(axis: str) -> str:
    """Name of an axis where it meets a layer's inputs."""
    return f"{axis} (input)"


def positional(blocks: Mapping[str, int], t: int) -> dict[str, int]:
    """Block number of every axis and input axis in round t: p = ⌊t/G⌋ and q = t, modulo the number of blocks.

    G is the largest number of blocks of an axis. Where all have G blocks, a tensor's block is (p, q) = (⌊c/G⌋, c mod G)
    with c = t mod G²; in any case all pairs come up within G² rounds.
    """
    most = max(blocks.values(), default=1)
    outputs = {axis: t // most % count for axis, count in blocks.items()}
    return outputs | {input_axis(axis): t % count for axis, count in blocks.items()}


def block_numbers(
    axes: Axes, inputs: Mapping[str, frozenset[int]], blocks: Mapping[str, int], t: int
) -> dict[str, int]:
    """Block number of every axis in round t: adjacent axes count at different speeds, so that all pairs come up.

    Axes that meet in a tensor are given different levels, greedily; those of level l advance every G₀·...·G_{l−1}
    rounds, G_l being the largest number of blocks at level l. An axis that meets itself in a tensor (a residual sum
    around a single layer) only ever gets that tensor's diagonal blocks.
    """
    meets: dict[str, set[str]] = {axis: set() for axis in axes.sizes}
    for name, entry in axes.dims.items():
        inside = [part.axis for i in inputs.get(name, ()) for part in entry[i]]
        outside = [part.axis for i, dim in enumerate(entry) if i not in inputs.get(name, ()) for part in dim]
        for a in filter(None, inside):
            for b in filter(None, outside):
                meets[a].add(b)
                meets[b].add(a)
    levels: dict[str, int] = {}
    for axis in axes.sizes:
        taken = {levels[other] for other in meets[axis] if other in levels}
        levels[axis] = next(level for level in range(len(axes.sizes)) if level not in taken)
    depth = range(max(levels.values(), default=-1) + 1)
    most = [max(blocks[axis] for axis in levels if levels[axis] == level) for level in depth]
    return {axis: t // math.prod(most[:level]) % blocks[axis] for axis, level in levels.items()}


def block_of(axes: Axes, layout: Layout, channels: Mapping[str, Tensor], widths: Mapping[str, int]) -> Block:
    """The slice that keeps those channels.

    Args:
        axes: Table of axes, by role where input dimensions are cut apart.
        layout: Layout of the full model.
        channels: Axis (and input axis) -> the channels of its block.
        widths: Axis of the model's own table -> width of a block.
    """
    index, small = axes.index(layout, channels)
    source = {a: kept[torch.arange(axes.sizes[a]) % kept.numel()] for a, kept in channels.items()}
    sources = [axes.positions(dim, source) for name in layout.names for dim in axes.dims[name]]
    kept = tuple((axis, width) for axis, width in widths.items() if width < axes.sizes[axis])
    return Block(index, small, kept, sources=torch.cat(sources))


SOURCES, WEIGHT = "sources of block ", "weight of block "
"""How the state's tensors of a trained block are named, before its widths: in a round all of the same widths are the
same block."""


def with_block(state: State, submodel: Submodel, weight: float) -> State:
    """The state that knows of one more participant that trained a block; the whole model is none.

    Raises:
        TypeError: A slice that is no block.
    """
    if submodel.widths is None:
        return state
    if not isinstance(submodel, Block):
        raise TypeError("FedBRB's server needs the blocks that it sent, got a plain slice")
    name = str(submodel.widths)
    before = state.tensors.get(WEIGHT + name)
    total = torch.tensor(weight, dtype=torch.float64) if before is None else before + weight
    return state.with_tensors(**{SOURCES + name: submodel.sources, WEIGHT + name: total})


def blocks_in(state: State) -> list[tuple[float, Tensor]]:
    """Σ w of those that trained it and the sources of every block that the state knows of."""
    names = [key.removeprefix(WEIGHT) for key in state.tensors if key.startswith(WEIGHT)]
    return [(float(state.tensors[WEIGHT + name]), state.tensors[SOURCES + name]) for name in names]


def without_blocks(state: State) -> State:
    """The state that knows of no block: the next round's are others."""
    kept = {key: tensor for key, tensor in state.tensors.items() if not key.startswith((SOURCES, WEIGHT))}
    return replace(state, tensors=kept)


def broadcast_blocks(
    layout: Layout, flat: Tensor, held: Tensor, blocks: Iterable[tuple[float, Tensor]], rate: float
) -> Tensor:
    """x_j ← (1 − λ) x_j + λ · (weighted mean of the trained values that stand for j), where nobody held j.

    Args:
        layout: Layout of the full model.
        flat: Parameters after averaging, shape ``(size,)``; not changed.
        held: bool, shape ``(size,)``: trained this round.
        blocks: Weight and sources (:class:`Block`) of every kind of block in the cohort.
        rate: λ in [0, 1].
    """
    result, blocks = flat.clone(), list(blocks)
    lengths = [length for shape in layout.shapes for length in shape]
    split = [(weight, list(sources.to(flat.device).split(lengths))) for weight, sources in blocks]
    first = 0
    for new, old, trained in zip(layout.views(result), layout.views(flat), layout.views(held), strict=True):
        value, total = torch.zeros_like(old), torch.zeros_like(old)
        for weight, sources in split:
            own = sources[first : first + old.dim()]
            usable = _tiled(trained, own).to(old.dtype) * weight
            value += _tiled(old, own) * usable
            total += usable
        first += old.dim()
        reached = ~trained & (total > 0)
        new[reached] = torch.lerp(old[reached], value[reached] / total[reached], rate)
    return result


def _tiled(tensor: Tensor, sources: Sequence[Tensor]) -> Tensor:
    """The tensor with every position replaced by the one that stands for it."""
    for dim, positions in enumerate(sources):
        tensor = tensor.index_select(dim, positions)
    return tensor
