"""Tensors that no client sends but a slice cuts: frozen parameters, and buffers such as a frozen normalisation's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedfibos.channels.axes import Axes
from fedfibos.params import Layout
from fedfibos.submodel import Submodel


def fixed_tensors(module: nn.Module, axes: Axes) -> dict[str, Tensor]:
    """The tensors that are not trained, have an axis and are not the same everywhere, by name."""
    own = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    own |= {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}
    return {
        name: tensor
        for name, tensor in own.items()
        if any(part.axis is not None for dim in axes.dims.get(name, ()) for part in dim)
        and tensor.numel() > 0
        and float(tensor.min()) != float(tensor.max())
    }


def cut(tensors: Mapping[str, Tensor], axes: Axes, channels: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries of those tensors that belong to the channels, in local order."""
    out = {}
    for name, tensor in tensors.items():
        for i, dim in enumerate(axes.dims[name]):
            if any(part.axis in channels for part in dim):
                tensor = tensor.index_select(i, axes.positions(dim, channels).to(tensor.device))
        out[name] = tensor
    return out


def kept_channels(axes: Axes, layout: Layout, outer: Mapping[str, int], submodel: Submodel) -> dict[str, Tensor]:
    """The channels that a slice holds, in local order, read off its index.

    Where the tensors of an axis do not hold the same ones (blocks), those of the first tensor. No index tells of an
    axis that frozen tensors alone have (beside low-rank adapters): the slice's units do, or it is the first ones.

    Args:
        axes: Of the full model.
        layout: What the slice's index counts in: the full model's layout, or that of the slice it is nested in.
        outer: Axis -> channels there.
        submodel: The slice; all channels of the axes that it does not cut.
    """
    sizes = {**axes.sizes, **outer}
    kept: dict[str, Tensor] = {}
    index = getattr(submodel, "index", None)
    if index is None:
        return kept
    small = submodel.local_layout(layout)
    left = dict(submodel.widths or ())
    widths = {**sizes, **left}
    for name, shape, first, small_shape, start in zip(
        layout.names, layout.shapes, layout.offsets, small.shapes, small.offsets, strict=False
    ):
        for at, dim in enumerate(axes.dims[name]):
            offset, local = 0, 0
            for part in dim:
                axis = part.axis
                if axis in left and axis not in kept and axis is not None:
                    stride = _stride(small_shape, at)
                    places = start + (local + torch.arange(widths[axis]) * part.after) * stride
                    along = (index.cpu()[places] - first) // _stride(shape, at) % shape[at]
                    kept[axis] = (along - offset) // part.after % sizes[axis]
                offset += part.length(sizes)
                local += part.length(widths)
    return kept | {
        axis: _told_by_units(axis, sizes, submodel, width) for axis, width in left.items() if axis not in kept
    }


def _told_by_units(axis: str, sizes: Mapping[str, int], submodel: Submodel, width: int) -> Tensor:
    """The channels of an axis by the units of a slice; the first ones where it has none, or others."""
    units = getattr(submodel, "units", None)
    if units is not None and getattr(submodel, "num_units", None) == sum(sizes.values()):
        names = list(sizes)
        first = sum(sizes[name] for name in names[: names.index(axis)])
        own: Tensor = units[(units >= first) & (units < first + sizes[axis])] - first
        if len(own) == width:
            return own.cpu()
    return torch.arange(width)


def _stride(shape: tuple[int, ...], at: int) -> int:
    """Scalars from one entry of a dimension to the next."""
    return int(torch.Size(shape[at + 1 :]).numel())


def channels_of(axes: Axes, layout: Layout, submodel: Submodel, within: Submodel | None) -> dict[str, Tensor]:
    """Axis -> the channels of the full model that a slice holds; axes that it does not cut are left out.

    Args:
        axes: Of the full model.
        layout: Of the full model.
        submodel: The slice.
        within: The slice it is a nested member of, where it is one.
    """
    if within is None or within.widths is None:
        return kept_channels(axes, layout, {}, submodel)
    outer = kept_channels(axes, layout, {}, within)
    widths = {axis: kept.numel() for axis, kept in outer.items()}
    inner = kept_channels(axes, within.local_layout(layout), widths, submodel)
    return {**outer, **{axis: outer[axis][kept] if axis in outer else kept for axis, kept in inner.items()}}
