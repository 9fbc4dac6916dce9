"""A model's outline as bytes: compressed JSON, of bounded size, read field by field."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from fedfibos.channels.axes import Axes, Dimension, Fit, Part, Site
from fedfibos.channels.costs import Cost, Length
from fedfibos.params import Layout
from fedfibos.wire.model_outline import Outline
from fedfibos.wire.payload import WireError

MOST = 64 * 2**20
"""Bytes of an outline's text: models have some thousand tensors."""


def encode_outline(outline: Outline) -> bytes:
    """The outline, for :func:`decode_outline`."""
    axes, layout = outline.axes, outline.layout
    content = {
        "names": layout.names,
        "shapes": layout.shapes,
        "maskable": layout.num_maskable_tensors,
        "sizes": dict(axes.sizes),
        "dims": {name: [_packed(dim) for dim in dims] for name, dims in axes.dims.items()},
        "features": {name: _packed(dim) for name, dim in axes.features.items()},
        "classes": dict(axes.classes),
        "sites": [
            [site, [[None if of is None else [_packed(of[0]), *of[1:]] for of in fit] for fit in fits]]
            for site, fits in axes.sites.items()
        ],
        "whole": outline.whole,
        "rewritten": outline.rewritten,
        "macs": None if outline.macs is None else _packed_cost(outline.macs),
        "untrained": outline.untrained,
        "made_with": outline.made_with,
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)


def decode_outline(data: bytes) -> Outline:
    """Inverse of :func:`encode_outline`.

    Raises:
        WireError: Not an outline.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, MOST)
        if reader.unconsumed_tail or not reader.eof:
            raise ValueError(f"it must be of at most {MOST} bytes, whole")
        return _outline(json.loads(text))
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WireError(f"the outline of the model cannot be read: {type(error).__name__}: {error}") from None


def _outline(content: Mapping[str, Any]) -> Outline:
    layout = Layout(
        _texts(content["names"]),
        tuple(_numbers(shape) for shape in content["shapes"]),
        _number(content["maskable"]),
    )
    if len(layout.names) != len(layout.shapes) or not 0 < layout.num_maskable_tensors <= len(layout.names):
        raise ValueError("names, shapes and maskable tensors must agree")
    sizes = {str(axis): _number(size, 1) for axis, size in content["sizes"].items()}
    axes = Axes(
        sizes,
        {str(name): tuple(_dimension(dim, sizes) for dim in dims) for name, dims in content["dims"].items()},
        {str(name): _dimension(dim, sizes) for name, dim in content["features"].items()},
        {str(name): _number(dim) for name, dim in content["classes"].items()},
        {_site(site): tuple(_fit(fit, sizes) for fit in fits) for site, fits in content["sites"]},
    )
    macs = None if content["macs"] is None else _cost(content["macs"], sizes)
    texts = _texts(content["whole"]), _texts(content["rewritten"])
    return Outline(layout, axes, *texts, macs, str(content["untrained"]), str(content["made_with"]))


def _packed(dim: Dimension) -> list[list[Any]]:
    return [[part.axis, part.before, part.after] for part in dim]


def _dimension(parts: Any, sizes: Mapping[str, int]) -> Dimension:
    found = []
    for axis, before, after in parts:
        if axis is not None and axis not in sizes:
            raise ValueError(f"no axis {axis!r}")
        found.append(Part(axis, _number(before), _number(after)))
    return tuple(found)


def _site(given: Any) -> Site:
    function, owner, places = given
    return (
        str(function),
        str(owner),
        tuple((str(code), tuple(None if n is None else _number(n) for n in at)) for code, at in places),
    )


def _fit(given: Any, sizes: Mapping[str, int]) -> Fit:
    def entry(of: Any) -> Any:
        if len(of) not in (3, 4):
            raise ValueError(f"a size must be of a dimension and two or three numbers, got {len(of)} of them")
        return (_dimension(of[0], sizes), *_numbers(of[1:]))

    return tuple(None if of is None else entry(of) for of in given)


def _packed_cost(cost: Cost) -> list[Any]:
    return [
        [[[length.constant, length.each] for length in lengths], *Fraction(factor).as_integer_ratio()]
        for lengths, factor in cost.terms.items()
    ]


def _cost(given: Any, sizes: Mapping[str, int]) -> Cost:
    terms = {}
    for lengths, above, below in given:
        key = tuple(
            Length(_number(constant), tuple((_known(axis, sizes), _number(n)) for axis, n in each))
            for constant, each in lengths
        )
        terms[key] = Fraction(_number(above, -MOST), _number(below, 1))
    return Cost(terms)


def _known(axis: Any, sizes: Mapping[str, int]) -> str:
    if axis not in sizes:
        raise ValueError(f"no axis {axis!r}")
    return str(axis)


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def _numbers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(_number, values))


def _number(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"numbers must be whole, {least} or more, got {value!r}")
    return value
