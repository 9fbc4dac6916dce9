"""Dimensions as their factors describe them, written as parts of named axes."""

from __future__ import annotations

from collections.abc import Mapping

from fedfibos.channels.axes import Dimension, Part
from fedfibos.channels.factors import Dim, flat, length


def parts_of(dim: Dim, names: Mapping[int, str]) -> Dimension:
    """A dimension as runs of positions.

    Args:
        dim: Its factors; of those within one another at most one is an axis.
        names: Identity of a factor -> the axis it is.
    """
    parts: list[Part] = [Part(None)]
    for factor in reversed(flat(dim)):
        if id(factor) in names:
            parts = [Part(names[id(factor)], 1, _count(parts))]
        elif factor.parts is None:
            parts = _repeated(parts, factor.size)
        else:
            own = [part for piece in factor.parts for part in parts_of(piece, names)]
            if any(part.axis is not None for part in own):
                inner = _count(parts)
                parts = [Part(part.axis, part.before, part.after * inner) for part in own]
            else:
                parts = _repeated(parts, length([factor]))
    return tuple(_merged(parts))


def _count(parts: list[Part]) -> int:
    """Positions of parts that are of no axis."""
    return sum(part.before * part.after for part in parts)


def _repeated(parts: list[Part], times: int) -> list[Part]:
    """The parts, so many times one after another."""
    if len(parts) > 1:
        return parts * times
    (part,) = parts
    if part.axis is None:
        return [Part(None, after=part.after * times)]
    return [Part(part.axis, part.before * times, part.after)]


def _merged(parts: list[Part]) -> list[Part]:
    """Neighbours that are of no axis as one."""
    out: list[Part] = []
    for part in parts:
        if part.axis is None and out and out[-1].axis is None:
            out[-1] = Part(None, after=out[-1].after + part.after)
        else:
            out.append(part)
    return out
