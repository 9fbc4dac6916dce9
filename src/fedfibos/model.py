"""A model as the federated round sees it: any ``nn.Module`` plus the layout of its parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.axes import Axes, resized
from fedfibos.params import Layout, Params, layout_of, params_of
from fedfibos.submodel import Mask, Submodel


class Workspace:
    """Scratch space: a copy of a module whose parameters are views of one flat vector.

    Loading a client's values, reading the trained ones back and averaging are then single passes over
    contiguous memory, and one copy of the module serves every client of the same shape in turn.

    Attributes:
        module: The copy.
        layout: Where its tensors lie in the flat vector.
        values: float32, shape ``(layout.size,)``: the module's parameters.
        parameters: The module's parameters, in layout order.
    """

    def __init__(self, module: nn.Module, layout: Layout, device: torch.device) -> None:
        self.module = copy.deepcopy(module).to(device)
        self.layout = layout
        self.values = torch.zeros(layout.size, device=device)
        named = dict(self.module.named_parameters())
        self.parameters = [named[name] for name in layout.names]
        for parameter, view in zip(self.parameters, layout.views(self.values), strict=True):
            parameter.data = view
        self._buffers = list(self.module.buffers())
        self._initial_buffers = [buffer.clone() for buffer in self._buffers]
        self.has_batch_norm = has_batch_norm(module)

    def load(self, values: Tensor) -> nn.Module:
        """Copy a local vector in and put buffers back to their initial values: no trace of the last client."""
        self.values.copy_(values)
        for buffer, initial in zip(self._buffers, self._initial_buffers, strict=True):
            buffer.copy_(initial)
        return self.module


@dataclass(frozen=True)
class Model:
    """Architecture, layout and axes. Holds no parameter values of its own but the initial ones.

    Attributes:
        module: The architecture; its values are the initial parameters.
        layout: Layout of the trainable parameters.
        axes: Named channel axes, for methods that slice; None where they were not derived.
        device: Where training and evaluation run.
    """

    module: nn.Module
    layout: Layout
    axes: Axes | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    _workspaces: dict[Any, Workspace] = field(default_factory=dict, repr=False, compare=False)

    def initial_params(self) -> Params:
        """The module's own values as parameters."""
        return params_of(self.module, self.layout)

    def workspace(self, submodel: Submodel) -> Workspace:
        """The scratch space for submodels of that shape, made on first use."""
        key = None if isinstance(submodel, Mask) else submodel.widths
        if key not in self._workspaces:
            if isinstance(submodel, Mask):
                self._workspaces[key] = Workspace(self.module, self.layout, self.device)
            else:
                if self.axes is None:
                    raise ValueError(
                        "a sliced submodel needs the model's named axes, got a model without axes"
                    )
                small = resized(self.module, self.axes, dict(submodel.widths))
                self._workspaces[key] = Workspace(small, submodel.layout, self.device)
        return self._workspaces[key]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the scratch space."""
        return (Model, (self.module, self.layout, self.axes, self.device))


def model_of(
    module: nn.Module,
    *,
    maskable: Sequence[str] | None = None,
    axes: Axes | None = None,
    device: str | torch.device = "cpu",
) -> Model:
    """Wrap any ``nn.Module`` whose forward maps inputs to class scores (logits).

    Args:
        module: The architecture with its initial values.
        maskable: Names of the tensors that selection ranks; see :func:`fedfibos.params.layout_of`.
        axes: Named channel axes (``derive_axes``), needed by the methods that slice.
        device: Where clients train.
    """
    return Model(module, layout_of(module, maskable), axes, torch.device(device))


def has_batch_norm(module: nn.Module) -> bool:
    """True where a training step normalises over the batch."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())
