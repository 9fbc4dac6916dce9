"""What the methods that cut whole channels share: a client's width, HeteroFL's scaler and its classifier rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from fedfibos.channels.check import ADVICE
from fedfibos.channels.costs import Bounded, Cost, byte_cost, width_within
from fedfibos.local import local_training
from fedfibos.methods._memory import Train, memory_cost
from fedfibos.model import Model
from fedfibos.params import Layout, Params, is_normalisation, maskable_names
from fedfibos.steps.nested import Constrain
from fedfibos.submodel import Submodel, check_capacity, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Upload

_BY_ROWS = (nn.modules.conv._ConvNd, nn.Linear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
"""Layers whose tensors have their output first."""

Costs = Mapping[str, Cost]

CapacityBasis = Literal["parameters", "width"]
"""What a capacity is a fraction of: the maskable ``parameters`` or the channels of every axis (``width``)."""


def costs_of(
    model: Model, client: Client, train: Train, basis: CapacityBasis = "parameters", *, scored: bool = False
) -> Costs:
    """What the client's budget and its device bound of a slice, by name, as polynomials in its widths.

    Args:
        model: The model.
        client: Its budget, its device's limits, and how it trains.
        train: The method's, whose memory is measured.
        basis: Of the method.
        scored: Whether it sends a number for every channel beside its update.

    Raises:
        ValueError: The method's capacities are widths, and the federation has another budget.
    """
    if basis == "width" and client.budget != ("parameters",):
        raise ValueError(
            f"federation.budget = {list(client.budget)} bounds what a slice costs, method.capacity_basis = 'width' "
            "fixes its widths: leave one out"
        )
    bits = 64 + (client.local.absent_labels == "mask") + (32 if client.local.scaffold else 0)
    made: dict[Bounded, Callable[[], Cost]] = {
        "parameters": lambda: model.parameters,
        "macs": lambda: model.macs,
        "memory": lambda: step_memory(model, client.local, train),
        "bytes": lambda: byte_cost(model.axes, model.layout, bits, 32 if scored else 0),
    }
    costs: dict[str, Cost] = {name: made[name]() for name in client.budget}
    for name, limit in client.limits if basis == "parameters" else ():
        cost = costs.get(name) or replace(made[name](), shared=False)
        costs[name] = replace(cost, limit=limit * cost.per)
    return costs


def step_memory(model: Model, local: LocalTraining, train: Train) -> Cost:
    """The memory of a slice's training step, as :func:`fedfibos.methods._memory.memory_cost` finds it, once."""
    # The fleet's capacities, which are the levels of a nested family, change nothing of what it measures.
    key = ("memory", replace(local, lr=1.0, levels=()), train)
    return model.remembered(key, lambda: memory_cost(model, local, train))


def width_of(model: Model, capacity: float, basis: CapacityBasis, costs: Costs | None = None) -> float:
    """The width, in (0, 1], that a capacity affords: itself, or the largest within the budget.

    Args:
        model: The model.
        capacity: γ.
        basis: What it is a fraction of.
        costs: What is bounded (:func:`costs_of`); None: the parameters.

    Raises:
        ValueError: Below capacity 1, the model has no channels to cut, or the capacity is too small.
    """
    if capacity < 1.0 and not model.axes.sizes:
        name, why = next(iter(model.axes.whole.items()), ("", ""))
        reason = f"; {name!r} stays whole: {why}" if name else ""
        raise ValueError(
            f"slicing to capacity {capacity:g} needs a layer whose channels can be cut, the model has none (those of "
            f"its inputs and of its logits stay{reason}); use a method of masks, or {ADVICE}"
        )
    if basis == "width":
        check_capacity(capacity)
        return capacity
    return width_within(model.axes, {"parameters": model.parameters} if costs is None else costs, capacity)


def width_held(model: Model, submodel: Submodel, capacity: float, basis: CapacityBasis) -> float:
    """The width that a submodel was cut to; of any within a budget it is the largest that gives the same slice."""
    if basis == "width":
        return capacity
    return min((width / model.axes.sizes[axis] for axis, width in submodel.widths or ()), default=1.0)


def slice_of(model: Model, channels: Mapping[str, Tensor]) -> Submodel:
    """The submodel that keeps those channels of every axis; the whole model where none is cut."""
    if all(channels[axis].numel() == size for axis, size in model.axes.sizes.items()):
        return full(model.layout)
    return model.axes.slice(model.layout, channels).to(model.device)


def prefix(model: Model, capacity: float, basis: CapacityBasis = "parameters", costs: Costs | None = None) -> Submodel:
    """The first channels of every axis, as many as the capacity affords; the whole model at capacity 1.

    Raises:
        ValueError: Below 1, the model has no axes, or the capacity is too small.
    """
    if capacity == 1.0:
        return full(model.layout)
    widths = model.axes.widths(width_of(model, capacity, basis, costs))
    return slice_of(model, {axis: torch.arange(width) for axis, width in widths.items()})


def train_slice(
    model: Model, params: Params, submodel: Submodel, client: Client, *, width: float, scaler: bool
) -> Upload:
    """Local training of a slice as HeteroFL does it (its section 3).

    The scaler divides the outputs of every layer whose output channels are cut by the width, in training only, as
    dropout does.

    Args:
        model: Architecture, layout and axes.
        params: The global parameters.
        submodel: The client's slice, or the whole model.
        client: Its data and settings.
        width: Share of the channels that it holds, in (0, 1].
        scaler: Whether to scale.
    """
    constrain = None
    if scaler and submodel.widths is not None:
        small = submodel.local_layout(model.layout)
        constrain = _scaled_by(1 / width, _has_cut_outputs(model), small, model.device)
    return local_training(model, params, submodel, client, constrain=constrain)


def input_dims(model: Model) -> dict[str, frozenset[int]]:
    """Name of a parameter -> its dimensions that meet a layer's inputs; the others give its outputs.

    Follows from the kind of layer: the first dimension of a convolution, linear, recurrent or attention weight is its
    output (the second, if it is transposed), an embedding's vectors are outputs, and so is every vector. Of a parameter
    that a module defines by itself the first dimension that can be cut is the output.
    """
    roles = {}
    for name, shape in zip(model.layout.names, model.layout.shapes, strict=True):
        layer = model.module.get_submodule(name.rpartition(".")[0])
        dims = range(len(shape))
        if isinstance(layer, nn.modules.conv._ConvNd) and layer.transposed:
            inputs = {d for d in dims if d != 1} if len(shape) > 1 else set()
        elif isinstance(layer, _BY_ROWS):
            inputs = set(dims[1:])
        elif isinstance(layer, nn.Embedding):
            inputs = {0}
        else:
            inputs = {d for d in dims if d in _cut_dims(model, name)[1:]}
        roles[name] = frozenset(inputs)
    return roles


def _cut_dims(model: Model, name: str) -> list[int]:
    """The dimensions of a parameter that slicing can make smaller."""
    dims = model.axes.dims[name]
    return [i for i, dim in enumerate(dims) if any(part.axis is not None for part in dim)]


def _has_cut_outputs(model: Model) -> list[bool]:
    """Which parameters, in layout order, are scaled: those of layers whose outputs are cut, hence no classifier.

    Held ones too (``model.held``): what follows a layer does not know whether it counts against the budget.
    """
    inputs, layers = input_dims(model), set(maskable_names(model.module))
    return [
        name in layers
        and name not in model.axes.classes  # a classifier may share its weight with an embedding
        and any(dim not in inputs[name] for dim in _cut_dims(model, name))
        for name in model.layout.names
    ]


def _scaled_by(factor: float, scaled: list[bool], layout: Layout, device: torch.device) -> Constrain:
    """The scaler: a layer's output is linear in its weights and bias, so scaling these is scaling that."""
    scale = torch.ones(layout.size, device=device)
    for view, is_scaled in zip(layout.views(scale), scaled, strict=True):
        if is_scaled:
            view.fill_(factor)

    def constrain(values: Tensor) -> tuple[Tensor, Tensor]:
        return values * scale, scale

    return constrain


def scaler_cautions(model: Model, capacities: Sequence[float], scaler: bool) -> list[str]:
    """What to warn of where the scaler is used: layers that no normalisation follows."""
    if not scaler or min(capacities) == 1.0:
        return []
    bare = _not_normalised(model)
    if not bare:
        return []
    more = f" and {len(bare) - 1} more" if len(bare) > 1 else ""
    return [
        f"no normalisation follows {bare[0]!r}{more} to undo the scaler, which works in training alone: narrow "
        "submodels are out of scale at evaluation; method.scaler = false leaves it out"
    ]


def _not_normalised(model: Model) -> list[str]:
    """Scaled layers whose output channels are those of no normalisation layer."""
    axes, normalised = model.axes, set()
    for name, module in model.module.named_modules():
        if is_normalisation(module):
            of = [axes.dims.get(f"{name}.{own}", ()) for own, _ in module.named_parameters()]
            normalised |= {part.axis for dims in of for dim in dims for part in dim}
            normalised |= {part.axis for part in axes.features.get(name, ())}
    inputs = input_dims(model)
    bare: dict[str, None] = {}
    for name, scaled in zip(model.layout.names, _has_cut_outputs(model), strict=True):
        outputs = [dim for i, dim in enumerate(axes.dims[name]) if i not in inputs[name]]
        if scaled and not {part.axis for dim in outputs for part in dim if part.axis is not None} & normalised:
            bare[name.rpartition(".")[0]] = None  # a layer once, weight and bias
    return list(bare)
