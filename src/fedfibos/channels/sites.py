"""Sizes that a module's own code writes, and what they become where channels are cut.

Code like ``x.view(b, n, self.heads, self.head_size)`` or ``qkv.split(self.width)`` names sizes of the full model. The
place of each such call is noted when the module is traced, with the channels that its sizes belong to; a narrower copy
runs with the sizes of its own tensors at the same places.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from fedfibos.channels.axes import Axes, Dimension, Site, Spot
from fedfibos.channels.sized import PIECES, SIZED, Range, Ranges, numbers, own_pieces

_NAME = "_name_in_whole"
_DEEP = 24


def mark(module: nn.Module) -> None:
    """Let every module know its own name, by which sites are told apart."""
    for name, layer in module.named_modules():
        layer.__dict__[_NAME] = name


def owner_of(frame: FrameType | None) -> str:
    """The name of the module whose code runs."""
    while frame is not None:
        owner = _first_argument(frame)
        if isinstance(owner, nn.Module) and _NAME in owner.__dict__:
            name = owner.__dict__[_NAME]
            return repr(name) if name else "the model itself"
        frame = frame.f_back
    return "the model"


@cache
def _positions(code: CodeType) -> tuple[tuple[int | None, ...], ...]:
    """Lines and columns of every instruction: the same for all forms that Python gives a call as it warms up."""
    return tuple(code.co_positions())


def _first_argument(frame: FrameType) -> Any:
    """What a method's code calls self."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def site_of(function: str, frame: FrameType | None) -> Site | None:
    """Where a function of torch is called from; None outside of the modules that :func:`mark` knows."""
    places: list[Spot] = []
    while frame is not None and len(places) < _DEEP:
        places.append((frame.f_code.co_qualname, _positions(frame.f_code)[frame.f_lasti // 2]))
        owner = _first_argument(frame)
        if isinstance(owner, nn.Module) and _NAME in owner.__dict__:
            return function, owner.__dict__[_NAME], tuple(places)
        frame = frame.f_back
    return None


def narrow_sites(axes: Axes, widths: Mapping[str, int]) -> dict[Site, list[Ranges]]:
    """The sizes at every site where the axes have those widths."""
    sizes = {**axes.sizes, **widths}

    def narrow(entry: Any) -> Range | None:
        if entry is None:
            return None
        dim, start, stop, *full = entry
        first, last = (narrow_position(dim, position, axes.sizes, sizes) for position in (start, stop))
        return (first, last, full[0]) if full else (first, last)

    return {site: [tuple(map(narrow, entries)) for entries in times] for site, times in axes.sites.items()}


def narrow_position(dim: Dimension, position: int, full: Mapping[str, int], narrow: Mapping[str, int]) -> int:
    """How many positions are left of the first ``position`` of a dimension."""
    left = 0
    for part in dim:
        inside = min(position, part.length(full))
        block = part.after * (1 if part.axis is None else full[part.axis])
        kept = part.after * (1 if part.axis is None else narrow[part.axis])
        blocks, rest = divmod(inside, block)
        left += blocks * kept + min(rest, kept)
        position -= inside
    return left


class Fitting(TorchFunctionMode):
    """Run a narrower copy's code with the sizes of its own tensors.

    Attributes:
        changed: True once a size was another than the code's own, where that is watched.
    """

    def __init__(self, sites: Mapping[Site, Sequence[Ranges]], *, watched: bool = False) -> None:
        super().__init__()
        self.changed, self._watched = False, watched
        self._sites, self._functions = sites, {site[0] for site in sites}
        self._times: dict[Site, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, with other sizes where its place is known."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in self._functions:
            site = site_of(name, sys._getframe(1))
            if site is not None and site in self._sites:
                return self._fitted(func, name, site, args, kwargs)
        return func(*args, **kwargs)

    def _fitted(self, func: Any, name: str, site: Site, args: Any, kwargs: Any) -> Any:
        all_times, time = self._sites[site], self._times.get(site, 0)
        self._times[site] = time + 1
        ranges = all_times[time % len(all_times)]
        if not any(ranges):  # of this time, in a loop, no size belongs to an axis
            return func(*args, **kwargs)
        try:
            new_args, new_kwargs = SIZED[name].apply(args, kwargs, ranges)
        except Exception:  # a way of writing the call that is not known: it keeps the code's own sizes
            return func(*args, **kwargs)
        if SIZED[name] is PIECES:
            pieces = torch.split(*new_args, **new_kwargs)
            if self._watched:  # a call as the code has it, which a tracer would note
                self.changed = self.changed or own_pieces(func, args, kwargs) != new_args[1]
            return pieces
        self.changed = self.changed or numbers(new_args) != numbers(args) or numbers(new_kwargs) != numbers(kwargs)
        return func(*new_args, **new_kwargs)


def fit(module: nn.Module, axes: Axes, widths: Mapping[str, int]) -> None:
    """Let a narrower copy of a module run its code with the sizes of its own tensors, wherever it is copied to."""
    mark(module)
    own = module.__dict__.get("forward")
    module.__dict__["forward"] = partial(_fitted_forward, module, narrow_sites(axes, widths), own)


def _fitted_forward(module: nn.Module, sites: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
    with Fitting(sites):
        return type(module).forward(module, *args, **kwargs) if own is None else own(*args, **kwargs)
