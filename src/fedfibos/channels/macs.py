"""The multiply-accumulate operations of slices as a polynomial in their widths, read off a model's forward pass."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, shape_wrapper

from fedfibos.channels.axes import Axes
from fedfibos.channels.check import call, fixed_draws
from fedfibos.channels.costs import Cost, Length, length_of
from fedfibos.channels.resize import resize_module

Shape = Sequence[int]


def _rows_times(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    """Each row of one tensor times a matrix: the one matrix, or that of the row's group."""
    return 2 * math.prod(a) * b[-1]


def _all_pairs(a: Shape, b: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(a) * b[-2]


def _triples(a: Shape, w: Shape, b: Shape, *new: Sequence[int], **_: Any) -> int:
    """``nn.Bilinear``: a sum over the dimensions of all three, once they have the new ones."""
    shapes = []
    for shape, places in zip((a, w, b), new, strict=False):
        dims = list(shape)
        for at in sorted(places):
            dims.insert(at, 1)
        shapes.append(dims)
    return 2 * math.prod(int(size) for size in torch.broadcast_shapes(*shapes))


_aten = torch.ops.aten
PRODUCTS: Mapping[Any, Any] = {
    _aten.mv: lambda a, *_, **__: 2 * math.prod(a),
    _aten.addmv: lambda _, a, *__, **___: 2 * math.prod(a),
    _aten.dot: lambda a, *_, **__: 2 * math.prod(a),
    _aten._grouped_mm: _rows_times,
    _aten._trilinear: _triples,
    _aten._cdist_forward: _all_pairs,
    _aten._euclidean_dist: _all_pairs,
}
"""Products that torch's FLOP counter leaves out: operation -> its floating point operations, of the shapes."""

FORMULAS = {**flop_registry, **{operation: shape_wrapper(formula) for operation, formula in PRODUCTS.items()}}


@dataclass(frozen=True)
class _Product:
    """One operation of a forward pass: its multiply-accumulate operations and the weights in it."""

    macs: int
    weights: tuple[str, ...]


class _Products(TorchDispatchMode):
    """Notes the products of a forward pass."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = {p.untyped_storage()._cdata: name for name, p in module.named_parameters() if p.dim() > 1}
        self.found: list[_Product] = []

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = FORMULAS.get(function._overloadpacket)
        if formula is None:
            with self:
                given = function.decompose(*args, **kwargs)
            if given is not NotImplemented:
                return given
        given = function(*args, **kwargs)
        if formula is not None:
            leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            weights = [self.names.get(leaf.untyped_storage()._cdata) for leaf in leaves if leaf.dim() > 1]
            flops = int(formula(*args, **kwargs, out_val=given))
            self.found.append(_Product(flops // 2, tuple(dict.fromkeys(name for name in weights if name))))
        return given


def mac_cost(module: nn.Module, axes: Axes, example: Any) -> Cost:
    """Multiply-accumulate operations of one example's forward pass through a slice, exactly.

    A product with a weight takes as many for each of its scalars whatever the widths. What is left (products of
    activations, in attention) is looked at with one axis cut at a time. The result is compared with the counts of
    slices of other widths.

    Args:
        module: The full model; not changed.
        axes: Its axes.
        example: One batch of inputs: a tensor, or named ones. How long its texts are is part of what they cost.

    Raises:
        ValueError: The operations are no polynomial in the widths that is found so.
    """
    whole, cut = _products(module, axes, {}, example), axes.widths(0.5)

    def at(widths: Mapping[str, int]) -> list[_Product]:
        found = _products(module, axes, widths, example)
        if len(found) != len(whole):  # it chooses what it runs
            raise ValueError(_NO_POLYNOMIAL)
        return found

    terms: dict[tuple[Length, ...], Fraction] = defaultdict(Fraction)
    others: list[int] = []
    for number, (full, small) in enumerate(zip(whole, at(cut), strict=True)):
        lengths = _lengths(axes, full)
        if full.macs * _product(lengths, cut) == small.macs * _product(lengths, axes.sizes):
            terms[tuple(n for n in lengths if n.each)] += _each(full, lengths, axes, len(_rows(example)))
        else:
            others.append(number)
    if others:
        probes = {a: at({a: (n + 1) // 2}) for a, n in axes.sizes.items()}
        for number in others:
            lengths = _lengths(axes, whole[number])
            for axis in axes.sizes:
                lengths += _powers(axes, lengths, axis, whole[number].macs, probes[axis][number].macs)
            terms[tuple(n for n in lengths if n.each)] += _each(whole[number], lengths, axes, len(_rows(example)))
    cost = Cost({lengths: int(n) if n.denominator == 1 else n for lengths, n in terms.items()})
    for ratio in (0.75, 0.3):
        widths = axes.widths(ratio)
        counted = Fraction(sum(of.macs for of in _products(module, axes, widths, example)), len(_rows(example)))
        if cost.at(widths) != counted:
            raise ValueError(_NO_POLYNOMIAL)
    return cost


_NO_POLYNOMIAL = (
    "the operations of this model are no product of its widths: a budget of 'macs' cannot be kept, 'parameters' can"
)


def _rows(example: Any) -> Tensor:
    """A tensor whose length is the number of examples."""
    return next(leaf for leaf in tree_leaves(example) if isinstance(leaf, Tensor))


def _lengths(axes: Axes, product: _Product) -> tuple[Length, ...]:
    """Those of the one weight of a product; none where it has none, or several."""
    return tuple(map(length_of, axes.dims[product.weights[0]])) if len(product.weights) == 1 else ()


def _product(lengths: Sequence[Length], widths: Mapping[str, int]) -> int:
    return math.prod(length.at(widths) for length in lengths)


def _each(product: _Product, lengths: Sequence[Length], axes: Axes, examples: int) -> Fraction:
    """Operations of an example for each scalar that the lengths make; those that are never cut count as factors."""
    whole = Fraction(product.macs, _product(lengths, axes.sizes) * examples)
    return whole * math.prod(length.constant for length in lengths if not length.each)


def _powers(axes: Axes, lengths: Sequence[Length], axis: str, whole: int, cut: int) -> tuple[Length, ...]:
    """The further lengths of one axis that explain what cutting it alone makes of a count."""
    widths = {**axes.sizes, axis: (axes.sizes[axis] + 1) // 2}
    ratio = Fraction(cut * _product(lengths, axes.sizes), whole * _product(lengths, widths))
    for power in range(3):
        if ratio == Fraction(widths[axis], axes.sizes[axis]) ** power:
            return (Length(0, ((axis, 1),)),) * power
    raise ValueError(_NO_POLYNOMIAL)


def _products(module: nn.Module, axes: Axes, widths: Mapping[str, int], example: Any) -> list[_Product]:
    """Those of a slice's forward pass on an example, in evaluation mode, fused kernels as what they stand for."""
    small = resize_module(module, axes, widths).eval()
    products = _Products(small)
    with (
        sdpa_kernel(SDPBackend.MATH),
        _single_products(small),
        fixed_draws(),
        torch.enable_grad(),  # without it a transformer layer is one fused kernel
        products,
    ):
        call(small, example)
    return products.found


@contextmanager
def _single_products(module: nn.Module) -> Iterator[None]:
    """Run a block on torch's own kernels where a recurrent layer would be one of oneDNN's."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(before and not any(isinstance(layer, nn.RNNBase) for layer in module.modules()))
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)
