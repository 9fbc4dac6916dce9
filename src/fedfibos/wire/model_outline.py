"""What a client of a slice must know of the model, found out once, by the server: all but the values.

With it a client builds the module without its weights, cuts it to the widths that it is sent and allocates what is
left. It never has a tensor of the full model's size and derives nothing.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedfibos.channels.axes import Axes
from fedfibos.channels.costs import Cost
from fedfibos.common.copies import uncompiled
from fedfibos.common.inputs import Inputs
from fedfibos.common.unallocated import without_values
from fedfibos.model import Model
from fedfibos.params import Layout


@dataclass(frozen=True)
class Outline:
    """A model without its values.

    Attributes:
        layout: Of the full model.
        axes: Its named axes.
        whole: As of :class:`fedfibos.model.Model`.
        rewritten: As of :class:`fedfibos.model.Model`.
        macs: Operations of a slice; None: they are not known.
        untrained: Digest of what server and clients have alike and never send.
        made_with: Versions that places in code depend on (:func:`versions`).
    """

    layout: Layout
    axes: Axes
    whole: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    macs: Cost | None = None
    untrained: str = ""
    made_with: str = ""

    def model(self, module: nn.Module, example: Inputs | None = None) -> Model:
        """The model of a module that was built from the same code, with or without its weights.

        Args:
            module: The module.
            example: As of :class:`fedfibos.model.Model`.

        Raises:
            ValueError: It is another model, in one line.
        """
        if self.axes.sites and self.made_with != versions():
            raise ValueError(f"places in code were noted with {self.made_with}, this is {versions()}")
        module = uncompiled(module)  # as the server's is
        shapes = {name: tuple(tensor.shape) for name, tensor in (*module.named_parameters(), *module.named_buffers())}
        for name, shape in zip(self.layout.names, self.layout.shapes, strict=True):
            if shapes.get(name) != shape:
                raise ValueError(f"parameter {name!r} must be of shape {shape}, got {shapes.get(name)}")
        if others := sorted(shapes.keys() ^ self.axes.dims.keys()):
            raise ValueError(f"server and client have different models: {others[0]!r} is in one of them")
        for name, shape in shapes.items():
            if self.axes.shape(name, {}) != shape:
                raise ValueError(f"tensor {name!r} must be of shape {self.axes.shape(name, {})}, got {shape}")
        if (missing := without_values(module, self.layout.names)) is not None:
            raise ValueError(f"{missing!r} is not trained and has no values where a module is built without weights")
        model = Model(module, self.layout, torch.device("cpu"), example, None, {}, False, self.whole, self.rewritten)
        return model.knowing(self.axes, self.macs)


def outline_of(model: Model, *, untrained: str = "", macs: bool = False) -> Outline:
    """The outline of a model.

    Args:
        model: The model, with its values.
        untrained: Digest of what is not sent.
        macs: Whether clients need to know the operations of slices.

    Raises:
        ValueError: Its axes can't be derived.
    """
    return Outline(
        model.layout,
        replace(model.axes, whole={}),
        model.whole,
        model.rewritten,
        model.macs if macs else None,
        untrained,
        versions(),
    )


def versions() -> str:
    """Of Python and torch: places in code are those of one of each."""
    return f"Python {platform.python_version()}, torch {torch.__version__}"
