"""Scratch space to train in: a copy of a module over one flat vector."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedfibos.backend.recorded import recorder
from fedfibos.common.copies import copy_module
from fedfibos.common.norms import has_batch_norm
from fedfibos.common.unallocated import allocation
from fedfibos.params import Layout, check_kept, without_overlaps


class Workspace:
    """Scratch space: a copy of a module whose parameters are views of one flat vector.

    Loading a client's values, reading the trained ones back and averaging are then single passes over
    contiguous memory, and one copy of the module serves every client of the same shape in turn.

    Attributes:
        module: The copy.
        layout: Where its tensors lie in the flat vector.
        values: float32, shape ``(layout.size,)``: the module's parameters.
        parameters: The module's parameters, in layout order.
        recorder: What records its training steps; None where they are launched kernel by kernel.
    """

    def __init__(self, module: nn.Module, layout: Layout, device: torch.device, recorded: bool = False) -> None:
        # A copy, as its buffers are written in place.
        self.module = without_overlaps(copy_module(module, allocation(module))).to(device)
        self.layout = layout
        self.values = torch.zeros(layout.size, device=device)
        named = dict(self.module.named_parameters())
        self.parameters = [named[name] for name in layout.names]
        self._views = layout.views(self.values)
        self._reattach()
        named_views = zip(layout.names, self.parameters, self._views, strict=True)
        self._places = [(*each, each[2].data_ptr(), each[2].stride()) for each in named_views]
        trained = {id(parameter): name for name, parameter in zip(layout.names, self.parameters, strict=True)}
        self._owners = [
            (owner, key, parameter, trained[id(parameter)])
            for owner in self.module.modules()
            for key, parameter in owner._parameters.items()
            if parameter is not None and id(parameter) in trained
        ]
        self._moved = False
        self._buffers = [
            (owner, name, buffer) for owner in self.module.modules() for name, buffer in owner._buffers.items()
        ]
        self._buffer_names = [(owner, frozenset(owner._buffers)) for owner in self.module.modules()]
        self._named_buffers = dict(self.module.named_buffers())
        self._held = [buffer for _, _, buffer in self._buffers if buffer is not None]
        self._initial = [buffer.clone() for buffer in self._held]
        self.has_batch_norm = has_batch_norm(module)
        self.recorder = recorder(device) if recorded else None

    def rebound(self) -> bool:
        """Whether the module has put other tensors, or other memory, in place of its own since :meth:`load`."""
        return self._moved or any(owner._buffers.get(name) is not buffer for owner, name, buffer in self._buffers)

    def fetch(self) -> bool:
        """After a forward pass: bring in values that the module has put into memory of its own; whether there were any.

        A module may do so (``weight.data = renorm(weight.data)``): the flat vector has them then, and the parameters
        are views of it again.

        Raises:
            ValueError: A parameter has another shape, or another tensor is in its place.
        """
        moved = False
        for owner, key, parameter, name in self._owners:
            if owner._parameters.get(key) is not parameter:
                check_kept(name, parameter, owner._parameters.get(key), parameter.shape)
        for name, parameter, view, place, strides in self._places:
            if parameter.data_ptr() != place or parameter.stride() != strides:
                check_kept(name, parameter, parameter, view.shape)
                view.copy_(parameter.detach().clone())  # its memory may be the view's own, in another order
                moved = True
        if moved:
            self._reattach()
            self._moved = True
        return moved

    def _reattach(self) -> None:
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if not _lies_as(parameter, view):
                parameter.data = view

    def hold(self, fixed: Mapping[str, Tensor]) -> None:
        """Give tensors that are not trained these values, which :meth:`load` keeps."""
        named = {**dict(self.module.named_parameters()), **self._named_buffers}
        places = {id(buffer): i for i, buffer in enumerate(self._held)}
        for name, value in fixed.items():
            named[name].detach().copy_(value)
            if id(named[name]) in places:
                self._initial[places[id(named[name])]].copy_(value)

    def load(self, values: Tensor) -> nn.Module:
        """Copy a local vector in and put buffers back to their initial values: no trace of the last client."""
        for owner, key, parameter, _ in self._owners:
            owner._parameters[key] = parameter
        self._reattach()
        self._moved = False
        self.values.copy_(values)
        for owner, known in self._buffer_names:
            if len(owner._buffers) > len(known):  # a forward pass made more
                for name in owner._buffers.keys() - known:
                    del owner._buffers[name]
        for owner, name, buffer in self._buffers:
            owner._buffers[name] = buffer  # a module may have put another tensor in its place
        if self._held:
            torch._foreach_copy_(self._held, self._initial)
        return self.module


def _lies_as(parameter: Tensor, view: Tensor) -> bool:
    """Whether a parameter has the memory of a view, entry for entry."""
    return parameter.data_ptr() == view.data_ptr() and parameter.stride() == view.stride()
