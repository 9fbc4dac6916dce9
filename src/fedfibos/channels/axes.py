"""Named channel axes of a model: which tensor dimensions are the same channels, and slices of them.

A residual sum, a normalisation layer or a concatenation ties the channels of many tensors together: to drop
channel 3 of one is to drop it in all. The table says so once per model, so that a method which slices
(HeteroFL, FedRolex, FedBRB) only names the channels it keeps.

A slice computes what the full model does with zeros off the slice, wherever layers treat channels alike: convolutions,
linear layers, BatchNorm, and GroupNorm whose groups stay whole. It differs under LayerNorm and a GroupNorm of few large
groups, which normalise over the channels that are left, and in ``nn.MultiheadAttention``, whose scale follows the size
of a head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedfibos.common.validation import did_you_mean, listed
from fedfibos.params import Layout
from fedfibos.submodel import Slice, budget


@dataclass(frozen=True)
class Part:
    """A run of positions of one tensor dimension: ``before`` x channels x ``after``, the last fastest.

    Channel ``c`` of an axis of size ``C`` lies at ``(b * C + c) * after + a`` for every ``b < before``
    and ``a < after``.

    - plain channels: ``Part("conv1")``
    - a linear layer behind a flatten of 7 x 7 positions: ``Part("conv1", after=49)``
    - whole groups of 4 channels (GroupNorm, grouped convolution): ``Part("conv1", after=4)``
    - the same slice within each of 8 attention heads: ``Part("embed", before=8)``
    - the 4 gates of an LSTM: ``Part("hidden", before=4)``

    Attributes:
        axis: Name of the axis; None for ``before * after`` positions that are never sliced.
        before: Repetitions outside the channel.
        after: Consecutive positions that belong to one channel.
    """

    axis: str | None
    before: int = 1
    after: int = 1

    def length(self, widths: Mapping[str, int]) -> int:
        """Number of positions when the axis has ``widths[axis]`` channels."""
        return self.before * self.after * (1 if self.axis is None else widths[self.axis])


Dimension = tuple[Part, ...]
"""One tensor dimension: parts one after another; several where channels are concatenated."""


Spot = tuple[str, tuple[int | None, ...]]
"""A place in source code: the function, and lines and columns of an expression."""

Site = tuple[str, str, tuple[Spot, ...]]
"""A call: torch's function, the module whose code runs, and the places in that code, the innermost first."""

Fit = tuple[tuple[Dimension, int, int] | tuple[Dimension, int, int, int] | None, ...]
"""What the sizes of a call belong to, one by one: positions of a dimension from one to another; None: of no axis.

A fourth number is the size in the full model, of a dimension that has positions of inputs too (an image's, beside its
channels): code that writes this number is to write the slice's, and code that writes another has computed it.
"""


@dataclass(frozen=True)
class Axes:
    """The named axes of a model.

    Attributes:
        sizes: Axis -> number of channels. A channel is the unit of slicing: where the model only allows whole
            groups of channels to go, it is a whole group (``Part.after``).
        dims: Name of a parameter or buffer -> its dimensions.
        features: Name of a normalisation layer without parameters -> the channels it normalises.
        classes: Name of a parameter of the classifier -> the dimension whose entries belong to one class each.
        sites: Where the module's own code writes sizes that change with the axes (:mod:`fedfibos.channels.sites`).
        whole: Layer none of whose outputs can be cut -> why.
    """

    sizes: Mapping[str, int]
    dims: Mapping[str, tuple[Dimension, ...]]
    features: Mapping[str, Dimension] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)
    sites: Mapping[Site, tuple[Fit, ...]] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)

    def widths(self, ratio: float) -> dict[str, int]:
        """``⌈ratio · C⌉`` channels for every axis of C channels (HeteroFL, section 3)."""
        if not 0.0 < ratio <= 1.0:
            raise ValueError(f"width must be in (0, 1], got {ratio:g}")
        return {axis: budget(ratio, size) for axis, size in self.sizes.items()}

    def shape(self, name: str, widths: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of a tensor when the axes have those widths (axes left out: all channels)."""
        if name not in self.dims:
            raise ValueError(f"tensor {name!r} is not in the table of axes{nearest(name, self.dims)}")
        sizes = {**self.sizes, **widths}
        return tuple(sum(part.length(sizes) for part in dim) for dim in self.dims[name])

    def small_layout(self, layout: Layout, widths: Mapping[str, int]) -> Layout:
        """Layout of the small tensors: same names, same order, same maskable tensors."""
        shapes = tuple(self.shape(name, widths) for name in layout.names)
        return Layout(layout.names, shapes, layout.num_maskable_tensors)

    def index(self, layout: Layout, channels: Mapping[str, Tensor]) -> tuple[Tensor, Layout]:
        """The global coordinate of every local one.

        Args:
            layout: Layout of the full model.
            channels: Axis -> kept channels, int64, no repeats; local channel ``i`` is global channel
                ``channels[axis][i]``, so a window may wrap around. Axes left out keep all channels.

        Returns:
            int64, shape ``(small size,)``, no repeats, and the layout of the small tensors.

        Raises:
            ValueError: Unknown axis, or channels that are repeated, out of range or none at all.
        """
        self._check_channels(channels)
        small = self.small_layout(layout, {axis: kept.numel() for axis, kept in channels.items()})
        index = torch.empty(small.size, dtype=torch.int64)
        positions: dict[Dimension, Tensor] = {}
        for name, shape, start, stop, base in zip(
            layout.names, layout.shapes, small.offsets, small.offsets[1:], layout.offsets, strict=False
        ):
            dims, tail = _leading(self.dims[name], shape)
            for dim in dims:
                if dim not in positions:
                    positions[dim] = self.positions(dim, channels)
            stride = math.prod(shape)
            rows = torch.tensor([base])
            for dim, length in zip(dims, shape, strict=False):
                stride //= length
                rows = (rows[:, None] + positions[dim] * stride).view(-1)
            torch.add(rows[:, None], torch.arange(tail), out=index[start:stop].view(rows.numel(), tail))
        return index, small

    def slice(self, layout: Layout, channels: Mapping[str, Tensor]) -> Slice:
        """The submodel that keeps those channels; arguments as of :meth:`index`."""
        index, small = self.index(layout, channels)
        widths = {axis: channels[axis].numel() for axis in self.sizes if axis in channels}
        cut = tuple((axis, n) for axis, n in widths.items() if n < self.sizes[axis])
        return Slice(index, small, cut, units=self.units(channels), num_units=self.num_units)

    def own_view(self, layout: Layout, widths: Mapping[str, int]) -> Slice:
        """A slice of those widths as its client sees it: local coordinates alone, whichever channels they are.

        Args:
            layout: Layout of the full model.
            widths: Of the axes that are cut.
        """
        small = self.small_layout(layout, widths)
        held = self.num_units - sum(self.sizes[axis] - width for axis, width in widths.items())
        return Slice(None, small, tuple(widths.items()), units=torch.arange(held), num_units=self.num_units)

    @property
    def num_units(self) -> int:
        """Channels of all axes together."""
        return sum(self.sizes.values())

    def units(self, channels: Mapping[str, Tensor]) -> Tensor:
        """The places of those channels among all channels of all axes, axis after axis; int64.

        Args:
            channels: As of :meth:`index`.
        """
        kept, first = [torch.empty(0, dtype=torch.int64)], 0
        for axis, size in self.sizes.items():
            chosen = channels.get(axis)
            kept.append(first + (torch.arange(size) if chosen is None else chosen))
            first += size
        return torch.cat(kept)

    def positions(self, dim: Dimension, channels: Mapping[str, Tensor]) -> Tensor:
        """Kept positions of one dimension, in local order."""
        kept, offset = [], 0
        for part in dim:
            size = 1 if part.axis is None else self.sizes[part.axis]
            chosen = None if part.axis is None else channels.get(part.axis)
            chosen = torch.arange(size) if chosen is None else chosen
            before = torch.arange(part.before)[:, None, None] * size
            inside = (before + chosen[None, :, None]) * part.after + torch.arange(part.after)
            kept.append(offset + inside.view(-1))
            offset += part.before * size * part.after
        return kept[0] if len(kept) == 1 else torch.cat(kept)

    def _check_channels(self, channels: Mapping[str, Tensor]) -> None:
        for axis, kept in channels.items():
            if axis not in self.sizes:
                raise ValueError(f"unknown axis {axis!r}{nearest(axis, self.sizes)}")
            if not 1 <= kept.numel() <= self.sizes[axis] or kept.dim() != 1 or kept.dtype != torch.int64:
                raise ValueError(
                    f"channels of axis {axis!r} must be 1 to {self.sizes[axis]} int64 numbers, "
                    f"got {kept.dtype} of shape {tuple(kept.shape)}"
                )
            if int(kept.min()) < 0 or int(kept.max()) >= self.sizes[axis]:
                raise ValueError(f"channels of axis {axis!r} must be in [0, {self.sizes[axis]}), got {kept.tolist()}")
            if int(torch.bincount(kept).max()) > 1:
                raise ValueError(f"channels of axis {axis!r} must not repeat, got {kept.tolist()}")


def _leading(dims: tuple[Dimension, ...], shape: tuple[int, ...]) -> tuple[tuple[Dimension, ...], int]:
    """The dimensions up to the last that can be sliced, and the number of scalars behind each of their entries."""
    sliced = [i for i, dim in enumerate(dims) if any(part.axis is not None for part in dim)]
    count = sliced[-1] + 1 if sliced else 0
    return dims[:count], math.prod(shape[count:])


def axes_table(
    module: nn.Module,
    sizes: Mapping[str, int],
    dims: Mapping[str, tuple[str | Part | Dimension | None, ...]],
    classes: Mapping[str, int] | None = None,
) -> Axes:
    """A hand-written table, for a model whose axes can't be derived (an LSTM, say).

    Args:
        module: The model the table describes.
        sizes: Axis -> number of channels.
        dims: Parameter or buffer name -> one entry per dimension: an axis, None (never sliced), a :class:`Part`, or
            parts one after another. Tensors left out are never sliced.
        classes: As in :class:`Axes`, for methods that treat the classifier's rows apart.

    Raises:
        ValueError: Unknown tensor or axis, or a dimension whose parts don't add up to the tensor's shape.

    Example:
        >>> axes = axes_table(nn.Linear(4, 2), {"in": 4}, {"weight": (None, "in")})
        >>> axes.shape("weight", axes.widths(0.5))
        (2, 2)
    """
    shapes = {name: tuple(t.shape) for name, t in (*module.named_parameters(), *module.named_buffers())}
    if unknown := [name for name in dims if name not in shapes]:
        raise ValueError(f"the model has no tensor {unknown[0]!r}{nearest(unknown[0], shapes)}")
    table = {name: tuple(_whole(n) for n in shape) for name, shape in shapes.items()}
    for name, entries in dims.items():
        if len(entries) != len(shapes[name]):
            raise ValueError(
                f"tensor {name!r} of shape {shapes[name]} needs {len(shapes[name])} entries, got {entries}"
            )
        table[name] = tuple(_dimension(e, n) for e, n in zip(entries, shapes[name], strict=True))
        for axis in (part.axis for dim in table[name] for part in dim):
            if axis is not None and axis not in sizes:
                raise ValueError(f"unknown axis {axis!r} of tensor {name!r}{nearest(axis, sizes)}")
    if unknown := [name for name in classes or {} if name not in shapes]:
        raise ValueError(f"the model has no tensor {unknown[0]!r}{nearest(unknown[0], shapes)}")
    axes = Axes(dict(sizes), table, classes=dict(classes or {}))
    for name, shape in shapes.items():
        if axes.shape(name, {}) != shape:
            raise ValueError(f"the parts of tensor {name!r} add up to shape {axes.shape(name, {})}, it is {shape}")
    return axes


def _whole(length: int) -> Dimension:
    """A dimension that is never sliced."""
    return (Part(None, after=length),)


def _dimension(entry: str | Part | Dimension | None, length: int) -> Dimension:
    if entry is None:
        return _whole(length)
    if isinstance(entry, str):
        return (Part(entry),)
    return (entry,) if isinstance(entry, Part) else tuple(entry)


def nearest(name: str, known: Mapping[str, object]) -> str:
    """What to write instead of an unknown name."""
    return did_you_mean(name, known) or f"; it must be {listed(known)}"
