"""The memory of a slice's training step as polynomials in its widths, found on real steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfibos.backend.memory import lifetimes, peak_memory
from fedfibos.channels.check import call, fixed_draws
from fedfibos.channels.costs import Cost, Length, tensor_cost
from fedfibos.channels.family import with_nested
from fedfibos.channels.moments import PER_BYTE, peak_cost, probes
from fedfibos.channels.resize import resize_module
from fedfibos.common.inputs import Inputs
from fedfibos.common.streams import stream
from fedfibos.methods._targets import made_up_targets
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Upload

Train = Callable[[Model, Params, Submodel, Client], Upload]
"""A method's local training."""

RATIOS = (1.0, 0.5, 0.25, 1e-9)
"""Widths at which steps are measured, besides unequal ones."""

UNEQUAL = 5
"""How many of those."""

MARGIN = 1.03
"""How far above what is fitted a slice is counted."""


@dataclass(frozen=True)
class Examples:
    """As many examples as a batch takes, from the model's example."""

    inputs: Inputs
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> Inputs:
        """See :class:`fedfibos.types.Dataset`."""
        if isinstance(self.inputs, Tensor):
            return self.inputs[indices % len(self.inputs)]
        return {name: tensor[indices % len(tensor)] for name, tensor in self.inputs.items()}

    def subset(self, indices: Tensor) -> Examples:
        """See :class:`fedfibos.types.Dataset`."""
        return Examples(self.batch(indices), self.labels[indices])


def memory_cost(model: Model, local: LocalTraining, train: Train) -> Cost:
    """Bytes of the tensors of a training step at its peak, as :class:`fedfibos.analysis.cost.Cost` counts them.

    What is alive at each moment of a step, as polynomials in the widths (:mod:`fedfibos.channels.moments`), raised
    where steps at other widths take more. Where a step does not make the same tensors whatever the widths, as where a
    model chooses what it runs, the peak itself is fitted (:func:`_fitted_cost`).

    Args:
        model: The model, with an example.
        local: How clients train: batch size, optimiser, nested steps.
        train: The method's own training, which may hold more than a plain one.

    Raises:
        ValueError: The model has no example.
    """
    if model.example is None:
        raise ValueError("a budget of 'memory' needs a model with an example batch, got one without")
    size = max(local.batch_size, 2)

    def step(widths: Mapping[str, int], batch: int = size) -> Callable[[], object]:
        return _step(model, local, train, widths, batch)

    whole = PER_BYTE * peak_memory(step({}))
    base, *_ = every = probes(model.axes)
    found = None
    if model.axes.sizes:
        small = [lifetimes(step(widths, 2)) for widths in every]
        found = peak_cost(model.axes, model.layout, small, lifetimes(step(base)))
    if found is None:
        return replace(_fitted_cost(model, step, size), whole=whole)
    tried = [model.axes.widths(0.25), *_unequal(model)[:2]]
    over = max(peak_memory(step(widths)) * PER_BYTE / float(found.at(widths)) for widths in tried)
    sums = [{lengths: math.ceil(n * max(over, 1.0)) for lengths, n in terms.items()} for terms in found.sums]
    return replace(found, terms=sums[0], others=tuple(sums[1:]), whole=whole)


def _fitted_cost(model: Model, step: Callable[[Mapping[str, int]], Callable[[], object]], size: int) -> Cost:
    """α·(bytes of the parameters) + β·(bytes that a forward pass keeps for the backward pass) + γ.

    Fitted to steps at some widths, and raised until none of them is above it. What is kept is a sum over axes, found by
    cutting one at a time.
    """
    axes = model.axes
    kept = _kept(model, size)
    parameters = tensor_cost(axes, [(name, 4) for name in model.layout.names])
    rows, peaks = [], []
    for widths in _widths(model):
        rows.append((float(parameters.at(widths)), kept[None] + sum(kept[a] * n for a, n in widths.items()), 1.0))
        peaks.append(float(peak_memory(step(widths))))
    alpha, beta, gamma = _fitted(np.array(rows), np.array(peaks))
    terms = {lengths: math.ceil(alpha * PER_BYTE * n) for lengths, n in parameters.terms.items()}
    for axis in axes.sizes:
        channels = (Length(0, ((axis, 1),)),)
        terms[channels] = terms.get(channels, 0) + math.ceil(beta * PER_BYTE * kept[axis])
    terms[()] = terms.get((), 0) + math.ceil(PER_BYTE * (gamma + beta * kept[None]))
    return Cost(terms, PER_BYTE)


def _widths(model: Model) -> list[dict[str, int]]:
    """Equal ones, and some that are not."""
    return [model.axes.widths(ratio) for ratio in RATIOS] + _unequal(model)


def _unequal(model: Model) -> list[dict[str, int]]:
    sizes, drawn = model.axes.sizes, stream(0, "widths of the memory's measurement")
    return [{a: int(torch.randint(1, n + 1, (), generator=drawn)) for a, n in sizes.items()} for _ in range(UNEQUAL)]


def _fitted(rows: NDArray[np.float64], peaks: NDArray[np.float64]) -> tuple[float, float, float]:
    """Factors of least relative error, none of the first two below 0, raised until no peak is above."""
    weights = rows / peaks[:, None]
    used = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(weights[:, used], np.ones(len(peaks)), rcond=None)[0]
        if below := [k for k, factor in zip(used, found, strict=True) if k < 2 and factor < 0]:
            used.remove(below[0])
            continue
        factors = np.zeros(3)
        factors[used] = found
        factors *= MARGIN * max(1.0, float((1.0 / (weights @ factors)).max()))
        return float(factors[0]), float(factors[1]), float(factors[2])


def _kept(model: Model, batch_size: int) -> dict[str | None, float]:
    """Bytes that the forward pass of a batch keeps, for each channel of an axis; under None those of no channel."""
    whole, sizes = _kept_at(model, {}), model.axes.sizes
    scale = batch_size / _length(model.example)
    each: dict[str | None, float] = {}
    for axis, size in sizes.items():
        half = (size + 1) // 2
        each[axis] = max((whole - _kept_at(model, {axis: half})) / (size - half), 0.0) * scale
    each[None] = whole * scale - sum(each[axis] * size for axis, size in sizes.items())
    return each


def _kept_at(model: Model, widths: Mapping[str, int]) -> int:
    """Bytes that the forward pass of the example keeps in a slice, besides the parameters."""
    small = resize_module(model.module, model.axes, widths).train()
    own = {tensor.untyped_storage()._cdata for tensor in (*small.parameters(), *small.buffers())}
    found: dict[int, tuple[int, Any]] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            found[storage._cdata] = storage.nbytes(), storage
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), fixed_draws():
        outputs = call(small, model.example)
    del outputs
    return sum(size for size, _ in found.values())


def _step(
    model: Model, local: LocalTraining, train: Train, widths: Mapping[str, int], size: int
) -> Callable[[], object]:
    """Two steps of a slice, of the whole model without widths, to be watched; one has run already.

    From the second on an optimiser's state lies beside the gradients.
    """
    params = model.initial_params().to(model.device)
    submodel: Submodel = full(model.layout)
    if widths:
        kept = {axis: torch.arange(width) for axis, width in widths.items()}
        submodel = model.axes.slice(model.layout, kept).to(model.device)
    never = 1e-9 if local.nested else 0.0
    if local.nested:  # a family holds its values apart from those of the step; steps of all are the largest
        one = {axis: torch.arange(1) for axis in model.axes.sizes}
        narrow = model.axes.slice(model.layout, one).to(model.device)
        submodel = with_nested(submodel, [narrow], model.axes, model.layout)
    data = Examples(model.example if model.example is not None else torch.empty(0), made_up_targets(model, size))
    client = Client(0, 1.0, 0, 0, replace(local, steps=2, epochs=None, nested=never), data)
    train(model, params, submodel, replace(client, local=replace(client.local, steps=1, batch_size=2)))
    return lambda: train(model, params, submodel, client)


def _length(example: Inputs | None) -> int:
    assert example is not None
    return len(example if isinstance(example, Tensor) else next(iter(example.values())))
