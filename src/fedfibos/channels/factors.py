"""Dimensions as products of factors: what a trace of a module knows of where channels lie.

A dimension of a tensor is a list of factors, the outermost first: 24 positions that a view takes apart into 4 heads of
6 are ``[4, 6]``. A factor may be a concatenation of other dimensions. Which factors are the same channels is found as
operations meet: adding two tensors makes their dimensions the same, a view takes a factor apart wherever it is used.
Whatever does not fit this description is *whole*: it is never cut.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

OUTPUTS = "they are the model's outputs"
APART = "each position has a role of its own"


class Factor:
    """Positions that may be channels.

    Attributes:
        size: How many, above 1.
        why_whole: Why they are never cut; None while nothing forbids it.
        constant: True where no parameter has to do with it: examples, positions, what code computes.
        same_as: The factor it was found to be.
        product: The factors it was taken apart into, the outermost first.
        parts: The dimensions it concatenates; an empty one is a single position.
        met: True once it was found to be the same as another.
    """

    __slots__ = ("constant", "met", "parts", "product", "same_as", "size", "why_whole")

    def __init__(self, size: int, why_whole: str | None = None, constant: bool = False) -> None:
        self.size, self.why_whole, self.constant = size, why_whole, constant
        self.same_as: Factor | None = None
        self.product: list[Factor] | None = None
        self.parts: list[Dim] | None = None
        self.met = False

    def pieces(self, sizes: Sequence[int]) -> Dim:
        """New factors of those sizes, of which the same is known."""
        own = [Factor(size, self.why_whole, self.constant) for size in sizes]
        for factor in own:
            factor.met = self.met
        return own


Dim = list[Factor]
"""One dimension: its factors, the outermost first; empty where it has one position."""


class Mismatch(Exception):
    """Two descriptions of the same positions that have no common refinement."""


def fresh(size: int) -> Dim:
    """A dimension of which nothing is known."""
    return [Factor(size)] if size != 1 else []


def constant(size: int) -> Dim:
    """A dimension that no parameter has to do with."""
    return [Factor(size, "", constant=True)] if size != 1 else []


def flat(dim: Sequence[Factor]) -> Dim:
    """The factors as known by now, none of which is a product."""
    out: Dim = []
    for factor in dim:
        while factor.same_as is not None:
            factor = factor.same_as
        if factor.product is None:
            out.append(factor)
        else:
            out += flat(factor.product)
    return out


def length(dim: Sequence[Factor]) -> int:
    """Number of positions."""
    return math.prod(factor.size for factor in dim)


def leaves(dim: Sequence[Factor]) -> Iterator[Factor]:
    """The factors that are neither products nor concatenations."""
    for factor in flat(dim):
        if factor.parts is None:
            yield factor
        else:
            for part in factor.parts:
                yield from leaves(part)


def is_constant(dim: Sequence[Factor]) -> bool:
    """True where no parameter has to do with any of it."""
    return all(leaf.constant for leaf in leaves(dim))


def has_positions(dim: Sequence[Factor]) -> bool:
    """True where some of it is constant, or a single position between others: a map of one pixel between zeros."""
    factors = flat(dim)
    parts = [part for factor in factors for part in factor.parts or []]
    return any(factor.constant for factor in factors) or any(not part or has_positions(part) for part in parts)


def keep_whole(dim: Sequence[Factor], why: str) -> None:
    """Never cut these positions; the first reason counts."""
    for leaf in leaves(dim):
        if leaf.why_whole is None:
            leaf.why_whole = why


def concatenate(dims: Sequence[Dim]) -> Dim:
    """One dimension after another."""
    parts: list[Dim] = []
    for dim in dims:
        factors = flat(dim)
        inner = factors[0].parts if len(factors) == 1 else None
        parts += [factors] if inner is None else inner
    if len(parts) == 1:
        return parts[0]
    size = sum(map(length, parts))
    if not any(parts):
        return [Factor(size, APART)]
    if is_constant(list(itertools.chain(*parts))):
        return constant(size)
    joined = Factor(size)
    joined.parts = parts
    return [joined]


def _no_reason() -> str:
    return ""


def same(one: Sequence[Factor], other: Sequence[Factor], why: Callable[[], str] = _no_reason) -> None:
    """Two dimensions are the same channels.

    Args:
        one: A dimension.
        other: Another of the same length.
        why: Why what meets a constant is never cut.

    Raises:
        Mismatch: They have no common refinement.
    """
    left, right = flat(one), flat(other)
    while left and right:
        a, b = left[0], right[0]
        if a.size == b.size:
            _join(a, b, why)
            left, right = flat(left[1:]), flat(right[1:])
        else:
            large, small = (a, b) if a.size > b.size else (b, a)
            _take_apart(large, small.size)
            left, right = flat(left), flat(right)
    if left or right:
        raise Mismatch


def _join(a: Factor, b: Factor, why: Callable[[], str]) -> None:
    """Two factors of one size, neither a product, are the same channels."""
    for leaf in leaves([a, b]):
        leaf.met = True
    if a is b:
        return
    if a.constant or b.constant:
        keep_whole([a, b], why())
    elif a.parts is None or b.parts is None:
        lost, kept = (a, b) if a.parts is None else (b, a)
        if lost.why_whole is not None:
            keep_whole([kept], lost.why_whole)
        lost.same_as = kept
    else:
        bounds = sorted({*_bounds(a.parts), *_bounds(b.parts)})
        _cut(a, bounds)
        _cut(b, bounds)
        for one, other in zip(a.parts or [], b.parts or [], strict=True):
            same(one, other, why)
        if b.same_as is None and a is not b:
            b.same_as = a


def _bounds(parts: Sequence[Dim]) -> list[int]:
    """Where the parts begin, the first excepted."""
    return list(itertools.accumulate(map(length, parts)))[:-1]


def _take_apart(factor: Factor, outer: int) -> None:
    """Make a factor a product whose first factor has ``outer`` positions."""
    inner, rest = divmod(factor.size, outer)
    if rest or inner == 1:
        raise Mismatch
    if factor.parts is None:
        factor.product = factor.pieces((outer, inner))
        return
    if all(length(part) % inner == 0 for part in factor.parts):
        pairs = [divide(part, inner) for part in factor.parts]
        for _, tail in pairs[1:]:
            same(pairs[0][1], tail)
        heads, tails = [head for head, _ in pairs], pairs[0][1]
        if any(heads):
            factor.product = [*concatenate(heads), *tails]
        else:  # equal parts, one after another
            factor.product = [Factor(outer, APART), *tails]
        return
    _cut(factor, list(range(inner, factor.size, inner)))
    pieces = pieces_of([factor], [inner] * outer)
    for piece in pieces[1:]:
        same(pieces[0], piece)
    factor.product = [Factor(outer, APART), *pieces[0]]


def divide(dim: Sequence[Factor], inner: int) -> tuple[Dim, Dim]:
    """A dimension as outer factors and inner ones, of ``inner`` positions.

    Raises:
        Mismatch: It can't be taken apart there.
    """
    head = flat(dim)
    tail: Dim = []
    while inner > 1:
        if not head:
            raise Mismatch
        last = head[-1]
        if inner % last.size == 0:
            tail.insert(0, head.pop())
            inner //= last.size
        elif last.size % inner == 0:
            _take_apart(last, last.size // inner)
            head = flat(head)
        else:
            raise Mismatch
    return head, tail


def regroup(dim: Sequence[Factor], sizes: Sequence[int]) -> list[Dim]:
    """The same positions as several dimensions, the outermost first.

    Raises:
        Mismatch: The sizes run across the factors.
    """
    groups: list[Dim] = []
    head = flat(dim)
    for size in reversed(sizes):
        head, tail = divide(head, size)
        groups.insert(0, tail)
    return groups


def _cut(factor: Factor, bounds: Sequence[int]) -> None:
    """Make a factor, not a product, a concatenation of parts that begin at ``bounds``, at least."""
    if factor.parts is None:
        ends = [0, *bounds, factor.size]
        sizes = [b - a for a, b in itertools.pairwise(ends)]
        factor.parts = [factor.pieces([n]) if n > 1 else [] for n in sizes]
        return
    parts, start = [], 0
    for part in factor.parts:
        stop = start + length(part)
        inside = [start, *(b for b in bounds if start < b < stop), stop]
        parts += pieces_of(part, [b - a for a, b in itertools.pairwise(inside)]) if len(inside) > 2 else [part]
        start = stop
    factor.parts = parts


def pieces_of(dim: Sequence[Factor], sizes: Sequence[int]) -> list[Dim]:
    """Consecutive pieces of a dimension.

    Raises:
        Mismatch: They cut through factors that lie within another.
    """
    if len(sizes) == 1:
        return [flat(dim)]
    factors = flat(dim)
    if is_constant(factors):
        return [constant(size) for size in sizes]
    first, inner = factors[0], length(factors[1:])
    if any(size % inner for size in sizes):
        raise Mismatch
    bounds = list(itertools.accumulate(size // inner for size in sizes))
    _cut(first, bounds[:-1])
    pieces, start, parts = [], 0, first.parts or []
    for stop in bounds:
        ends = list(itertools.accumulate(map(length, parts)))
        own = [part for part, end in zip(parts, ends, strict=True) if start < end <= stop]
        pieces.append([*(concatenate(own) if own else []), *factors[1:]])
        start = stop
    return pieces


def align(old: Sequence[int], new: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Dimensions of two shapes that hold the same positions, in the smallest groups."""
    i = j = 0
    while i < len(old) or j < len(new):
        own: list[int] = []
        other: list[int] = []
        a = b = 1
        while not own or not other or a != b:
            if (a <= b and i < len(old)) or j == len(new):
                if i == len(old):
                    break
                own.append(i)
                a *= old[i]
                i += 1
            else:
                other.append(j)
                b *= new[j]
                j += 1
        yield own, other
