"""Submodels: which coordinates of the global model a client holds, and the masks that scores pick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from fedfibos.backend.reductions import indicator
from fedfibos.backend.topk import top_k
from fedfibos.params import Layout


@dataclass(frozen=True)
class Mask:
    """A submodel of single scalars, trained in the shape of the full model.

    The client's *local vector* has the full model's size and is zero off the mask. The three verbs also take
    vectors of the d maskable coordinates alone, which come first (a statistic).

    Attributes:
        held: bool, shape ``(size,)``; None holds everything.
        num_held: Number of held coordinates, always-held ones included.
        widths: None: it is trained in tensors of full size.
        units: None, as of a slice without whole channels; 0 ``num_units``.
        nested: Smaller members of the same family, largest first, where local steps train them (``local.nested``).
    """

    held: Tensor | None
    num_held: int
    widths: ClassVar[None] = None
    units: ClassVar[None] = None
    num_units: ClassVar[int] = 0
    nested: tuple[Submodel, ...] = ()

    def __post_init__(self) -> None:
        """Check the type: the memory of ``held`` is read as bytes."""
        if self.held is not None and self.held.dtype != torch.bool:
            raise TypeError(f"a mask's held must be torch.bool, got {self.held.dtype}")

    @cached_property
    def indicator(self) -> Tensor | None:
        """1 on held coordinates, 0 elsewhere; float32, shape ``(size,)``. None where everything is held.

        Multiplying by it is several times faster than a conditional, which the processor cannot predict.
        """
        return None if self.held is None else indicator(self.held)

    @property
    def device(self) -> torch.device | None:
        """Where ``held`` lies; None where everything is held."""
        return None if self.held is None else self.held.device

    @property
    def is_all(self) -> bool:
        """Whether the local vector is the vector that it is gathered from: everything is held."""
        return self.held is None

    def local_layout(self, layout: Layout) -> Layout:
        """Layout of the client's local vector: that of the full model."""
        return layout

    def as_mask(self) -> Mask:
        """This mask, for what only masks can do."""
        return self

    def to(self, device: torch.device) -> Mask:
        """The same on that device."""
        held = None if self.held is None else self.held.to(device)
        return Mask(held, self.num_held, tuple(member.to(device) for member in self.nested))

    def gather(self, flat: Tensor) -> Tensor:
        """The client's local vector: ``flat`` on the mask, zero elsewhere (a copy)."""
        return flat.clone() if self.indicator is None else flat * self.indicator[: flat.numel()]

    def add_to(self, total: Tensor, local: Tensor, weight: float) -> None:
        """``total += weight * local``, in place."""
        total.add_(local, alpha=weight)

    def count_in(self, total: Tensor, weight: float) -> None:
        """``total += weight`` on every held coordinate, in place."""
        if self.indicator is None:
            total.add_(weight)
        else:
            total.add_(self.indicator[: total.numel()], alpha=weight)


@dataclass(frozen=True)
class Slice:
    """A submodel of whole channels, trained in really smaller tensors.

    The client's *local vector* has the small model's size.

    Attributes:
        index: int64, shape ``(small size,)``: the global coordinate of each local one, no repeats. None as the client
            itself sees its slice: all of what it was sent, in that order.
        layout: Layout of the small tensors; same names as the global layout.
        widths: ``(axis, number of kept channels)`` of every sliced axis: what the small module is built from.
        units: int64: of each channel that it holds, axis after axis, the place among all channels of all axes of the
            full model, or, for a nested member, among those that the client holds; None where a tensor's inputs and
            outputs are cut apart, so that it holds no whole channels.
        num_units: Channels of all axes of the full model, or of those that the client holds.
        nested: As of a :class:`Mask`; their ``index`` counts this slice's local coordinates.
    """

    index: Tensor | None
    layout: Layout
    widths: tuple[tuple[str, int], ...]
    units: Tensor | None = field(default=None, kw_only=True)
    num_units: int = field(default=0, kw_only=True)
    nested: tuple[Submodel, ...] = field(default=(), kw_only=True)
    held: ClassVar[None] = None
    indicator: ClassVar[None] = None
    """Both as of a :class:`Mask` that holds everything: of the local vector every coordinate is held."""

    @property
    def num_held(self) -> int:
        """Number of held coordinates."""
        return self.layout.size

    @property
    def device(self) -> torch.device | None:
        """Where ``index`` lies; None where there is none."""
        return None if self.index is None else self.index.device

    @property
    def is_all(self) -> bool:
        """Whether the local vector is the vector that it is gathered from: the client's own view."""
        return self.index is None

    def local_layout(self, layout: Layout) -> Layout:
        """Layout of the client's local vector: that of the small tensors."""
        return self.layout

    def as_mask(self) -> Mask:
        """Never.

        Raises:
            TypeError: Always: a slice is no mask.
        """
        raise TypeError("only a mask can be chosen by a client's own score, got a slice of whole channels")

    def to(self, device: torch.device) -> Self:
        """The same on that device."""
        units = None if self.units is None else self.units.to(device)
        nested = tuple(member.to(device) for member in self.nested)
        index = None if self.index is None else self.index.to(device)
        return replace(self, index=index, units=units, nested=nested)

    def gather(self, flat: Tensor) -> Tensor:
        """The client's local vector: the held coordinates of ``flat``, densely (a copy)."""
        return flat.clone() if self.index is None else flat.index_select(0, self.index)

    def add_to(self, total: Tensor, local: Tensor, weight: float) -> None:
        """``total[index] += weight * local``, in place (the index has no repeats, so order is free)."""
        if self.index is None:
            total.add_(local, alpha=weight)
        else:
            total.index_add_(0, self.index, local, alpha=weight)

    def count_in(self, total: Tensor, weight: float) -> None:
        """``total[index] += weight``, in place."""
        if self.index is None:
            total.add_(weight)
        else:
            total[self.index] += weight


Submodel = Mask | Slice


def full(layout: Layout) -> Mask:
    """The submodel that holds everything."""
    return Mask(None, layout.size)


def budget(capacity: float, num_maskable: int) -> int:
    """k = ⌈γd⌉ (paper, section Problem Formulation), of the fraction that a reader sees (:func:`exactly`)."""
    return math.ceil(exactly(capacity) * num_maskable)


def exactly(capacity: float) -> Fraction:
    """The fraction that a capacity stands for: ``0.1 * 30`` is slightly above 3 in floating point, 1/10 of 30 is 3.

    A ratio with a denominator up to a million where there is one within rounding (thirds, products of decimals), else
    the decimal that Python writes.
    """
    check_capacity(capacity)
    ratio = Fraction(capacity).limit_denominator(1_000_000)
    return ratio if ratio > 0 and math.isclose(ratio, capacity, rel_tol=1e-14) else Fraction(str(capacity))


def check_capacity(capacity: float, where: str = "") -> None:
    """Raise ValueError unless ``0 < capacity <= 1``."""
    if not 0.0 < capacity <= 1.0:
        raise ValueError(f"capacity must be in (0, 1], got {capacity:g}{where and f' for {where}'}")


def layer_budgets(capacity: float, layout: Layout) -> list[int]:
    """Share ⌈γd⌉ among the maskable tensors in proportion to their sizes.

    Every tensor gets the floor of its share, and at least one coordinate if it has any; what is left goes to those
    furthest below their share, ties by position. The total is exactly ⌈γd⌉ (or one per tensor if that is more).
    """
    sizes = layout.numels[: layout.num_maskable_tensors]
    total = budget(capacity, layout.num_maskable)
    shares = [total * size / layout.num_maskable for size in sizes]
    least = [min(1, size) for size in sizes]
    counts = [max(one, math.floor(share)) for one, share in zip(least, shares, strict=True)]
    by_remainder = sorted(range(len(sizes)), key=lambda i: (counts[i] - shares[i], i))
    while sum(counts) < total:
        for i in by_remainder:
            if sum(counts) < total and counts[i] < sizes[i]:
                counts[i] += 1
    by_size = sorted(range(len(sizes)), key=lambda i: (-counts[i], i))
    while sum(counts) > max(total, sum(least)):
        for i in by_size:
            if sum(counts) > max(total, sum(least)) and counts[i] > 1:
                counts[i] -= 1
    return counts


def layer_floors(floor: float, capacity: float, layout: Layout) -> list[int]:
    """What every maskable tensor is sure of: so much of its share γn, rounded down, and at least one coordinate.

    It never falls as the capacity grows.
    """
    if not 0.0 < floor <= 1.0:
        raise ValueError(f"floor must be in (0, 1], got {floor:g}")
    part = exactly(floor) * exactly(capacity)
    return [min(size, max(1, math.floor(part * size))) for size in layout.numels[: layout.num_maskable_tensors]]


def mask_from_scores(
    scores: Tensor, capacity: float, layout: Layout, scope: str = "global", floor: float = 0.0
) -> Mask:
    """Score -> mask: the ⌈γd⌉ highest of the d maskable coordinates, and everything that is always held.

    Args:
        scores: float32, shape ``(d,)``.
        capacity: γ in (0, 1].
        layout: Layout of the full model.
        scope: ``global`` ranks over all d; ``layer`` gives every tensor its share (:func:`layer_budgets`).
        floor: In [0, 1]. Above 0, and with ``global``, every tensor first holds its own best (:func:`layer_floors`),
            and then the best of all others fill the budget. So no layer is left empty where the budget reaches.

    Raises:
        ValueError: Scores of another shape or type, or an unknown scope.
    """
    if scope not in ("global", "layer"):
        raise ValueError(f"scope must be 'global' or 'layer', got {scope!r}")
    if not isinstance(scores, Tensor) or scores.shape != (layout.num_maskable,) or not scores.is_floating_point():
        got = f"{scores.dtype} of shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"scores must be floats of shape ({layout.num_maskable},), one a maskable parameter, got {got}"
        )
    k = budget(capacity, layout.num_maskable)
    if k == layout.num_maskable:
        return full(layout)
    if scope == "layer":
        return mask_by_layer(scores, layer_budgets(capacity, layout), layout)
    held = torch.ones(layout.size, dtype=torch.bool, device=scores.device)
    if floor == 0.0:
        top_k(scores, k, out=held[: layout.num_maskable])
        return Mask(held, k + layout.size - layout.num_maskable)
    least = layer_floors(floor, capacity, layout)
    sure = mask_by_layer(scores, least, layout).held
    assert sure is not None
    ranked, missing = sure[: layout.num_maskable], k - sum(least)
    some = (~ranked if missing > 0 else ranked).nonzero().flatten()  # those that the budget has not decided
    held[: layout.num_maskable] = ranked if missing > 0 else False
    held[some] = top_k(scores[some], missing if missing > 0 else k)
    return Mask(held, k + layout.size - layout.num_maskable)


def mask_by_layer(scores: Tensor, counts: Sequence[int], layout: Layout) -> Mask:
    """The highest scores of every maskable tensor, so many of each, and everything that is always held."""
    held = torch.ones(layout.size, dtype=torch.bool, device=scores.device)
    for (_, start, stop), count in zip(layout.maskable(), counts, strict=True):
        top_k(scores[start:stop], count, out=held[start:stop])
    return Mask(held, sum(counts) + layout.size - layout.num_maskable)


def kept_shares(submodel: Submodel, layout: Layout) -> dict[str, float]:
    """Share of each maskable tensor that the submodel holds, in [0, 1]; 0 is a dead layer."""
    held = holding(submodel, layout.size)
    return {name: float(held[start:stop].mean()) if stop > start else 1.0 for name, start, stop in layout.maskable()}


def holding(submodel: Submodel, size: int) -> Tensor:
    """1 on the coordinates of the full model that a submodel holds, 0 elsewhere; float32, shape ``(size,)``."""
    held = torch.zeros(size, device=submodel.device)
    submodel.count_in(held, 1.0)
    return held


def held_maskable(submodel: Submodel, layout: Layout) -> int:
    """How many of the maskable coordinates a submodel holds."""
    return int(holding(submodel, layout.size)[: layout.num_maskable].count_nonzero())
