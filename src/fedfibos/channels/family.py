"""Nested families: which smaller submodels lie inside a larger one, and where.

A family is what a method extracts at several capacities in one round. A client that holds its member holds the smaller
ones too, so some of its local steps can train one of them (``local.nested``), and nothing more has to be sent than
where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from fedfibos.channels.axes import Axes
from fedfibos.params import Layout
from fedfibos.submodel import Mask, Slice, Submodel


def with_nested(
    outer: Submodel, smaller: Sequence[Submodel], axes: Axes | None, layout: Layout, method: str = "this method"
) -> Submodel:
    """The submodel with its smaller family members, each in the coordinates of its own local vector.

    Args:
        outer: What a client holds.
        smaller: What the method extracts at smaller capacities, largest first. One that is no smaller than the member
            before it is left out.
        axes: The model's axes; None where nothing is sliced.
        layout: Of the full model.
        method: What extracted them, as an error names it.

    Raises:
        ValueError: One of them does not lie in the one before it.
    """
    nested: list[Submodel] = []
    last = outer
    for member in smaller:
        if member.num_held == last.num_held:
            continue
        if not contains(last, member):
            raise ValueError(
                "local.nested needs a method whose submodels nest: at every capacity inside those of larger ones; "
                f"those of {method} do not: leave out local.nested, or train by another method"
            )
        if member.units is None:
            nested.append(member)
        else:
            assert axes is not None
            nested.append(slice_within(outer, units_within(outer, member.units), axes, layout))
        last = member
    return replace(outer, nested=tuple(nested))


def contains(outer: Submodel, inner: Submodel) -> bool:
    """Whether everything that the inner submodel holds the outer one holds too; both of the full model.

    Of slices whose channels are not the same in all tensors (blocks) nothing is known: no.
    """
    if inner.widths is not None:
        if inner.units is None:
            return False
        everything = outer.held is None and outer.widths is None
        return everything or (outer.units is not None and bool(torch.isin(inner.units, outer.units).all()))
    if outer.widths is not None:
        return False
    return outer.held is None or (inner.held is not None and not bool((inner.held & ~outer.held).any()))


def units_within(outer: Submodel, units: Tensor) -> Tensor:
    """Where those channels lie among the ones that the outer submodel holds, ascending."""
    if outer.units is None:
        return units.sort().values
    held, order = outer.units.sort()
    return order[torch.searchsorted(held, units)].sort().values


def slice_within(outer: Submodel, units: Tensor, axes: Axes, layout: Layout) -> Slice:
    """The slice that keeps those of the outer submodel's channels: its index counts the outer's local coordinates.

    Args:
        outer: A slice, or the whole model.
        units: As of :func:`units_within`; at least one channel of every axis.
        axes: Of the full model.
        layout: Of the full model.
    """
    sizes = {**axes.sizes, **dict(outer.widths or ())}
    bounds = torch.tensor(list(accumulate(sizes.values(), initial=0)))
    channels = {
        axis: units[(units >= first) & (units < last)].cpu() - first
        for axis, first, last in zip(sizes, bounds, bounds[1:], strict=False)
    }
    index, small = replace(axes, sizes=sizes).index(outer.local_layout(layout), channels)
    cut = tuple((axis, kept.numel()) for axis, kept in channels.items() if kept.numel() < axes.sizes[axis])
    return Slice(index, small, cut, units=units, num_units=int(bounds[-1]))


def depths(submodel: Mask) -> Tensor:
    """How many members of a family of masks, the largest included, hold each coordinate; uint8, shape ``(size,)``.

    One vector says the whole family, since it nests.
    """
    members = [member.held for member in (submodel, *submodel.nested)]
    size = next(held.numel() for held in members if held is not None)
    depth = torch.zeros(size, dtype=torch.uint8)
    for held in members:
        depth += 1 if held is None else held.cpu()
    return depth


def masks_of(depth: Tensor, counts: Sequence[int]) -> Mask:
    """Inverse of :func:`depths`.

    Args:
        depth: uint8, shape ``(size,)``.
        counts: How many coordinates each member holds, largest first.
    """
    masks = [Mask(None if n == depth.numel() else depth > level, n) for level, n in enumerate(counts)]
    return replace(masks[0], nested=tuple(masks[1:]))
