"""How well the Fisher information of gates orders what leaving channels out really costs, for a run of slices.

Selections of one budget are set side by side at every capacity: the channels that the run's method holds (``method``),
those of the chain by F(m) as measured here (``fisher``) and by the squared weights that read them (``magnitude``), the
first ones (``prefix``), and some by chance (``random``). Their surrogate ε is the sum of ½ F(m) over the channels left
out. What leaving them out costs, with nothing trained since, is told twice: how much the loss of the client's examples
rises (``error``, which has a term of first order too and may be below 0), and how far the outputs move (``divergence``,
by the task's own distance from those of the whole model: of classes Kullback and Leibler's, of second order ½ F(m)).
Where a model normalises over a batch, F(m) is of batches of the size of a local step's, and each selection's statistics
are recomputed on the client's examples.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from fedfibos.analysis.gates import gate_fisher, logits_of_submodel
from fedfibos.analysis.theory import order_agreement
from fedfibos.channels.readers import GateSum, readers
from fedfibos.common.norms import has_batch_norm
from fedfibos.common.statistics import spread
from fedfibos.method import Method
from fedfibos.methods._slicing import prefix, slice_of
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.steps.loss import loss_of
from fedfibos.submodel import Submodel
from fedfibos.types import Client, State

RANDOM = 6
"""Selections by chance: enough pairs for a share of them to mean something."""


def holds_channels(method: Method, model: Model, state: State, params: Params, client: Client) -> bool:
    """Whether a client of that capacity holds whole channels."""
    return method.extract(model, state, params, client).units is not None


def diagnose_channels(
    method: Method,
    model: Model,
    state: State,
    params: Params,
    clients: Sequence[Client],
    capacities: Sequence[float],
    generator: torch.Generator,
) -> dict[str, Any]:
    """Measure selections of channels on some clients' examples, at one checkpoint.

    Args:
        method: Extracts its own slices.
        model: Architecture, layout and axes.
        state: The method's state.
        params: The global parameters.
        clients: Whom to measure, with their training data.
        capacities: γ of the slices, each below 1.
        generator: Stream of the random selections.

    Returns:
        ``str(γ)`` -> ``selections`` -> name -> ``surrogate`` ε, ``error``, ``divergence``, and ``held``, channels that
        are held; and ``order_agreement`` -> ``error``, ``divergence``: how often ε orders it, over pairs of
        different selections. Each a mean over clients with ``sd`` and ``n``.
    """
    magnitude, distance = _magnitude(model, params), model.task.distance
    found: dict[float, dict[tuple[str, ...], list[float]]] = {capacity: defaultdict(list) for capacity in capacities}
    for client in clients:
        data = client.data
        assert data is not None
        loss = loss_of(model.task, client.local, data.labels, model.device)
        together = max(client.local.batch_size, 2) if has_batch_norm(model.module) else 1
        fisher = gate_fisher(model, params, data, batch_size=together, loss=loss)
        labels = data.labels.to(model.device)
        whole = logits_of_submodel(model, params, prefix(model, 1.0), data)
        for capacity, numbers in found.items():
            own = method.extract(model, state, params, replace(client, capacity=capacity))
            points: dict[tuple[int, ...], tuple[float, float, float]] = {}
            for name, piece in _selections(model, own, capacity, fisher, magnitude, generator):
                held = _units(model, piece)
                out = torch.ones_like(fisher, dtype=torch.bool)
                out[held] = False
                epsilon = float(fisher[out].sum()) / 2
                logits = logits_of_submodel(model, params, piece, data)
                error = float(loss(logits, labels) - loss(whole, labels))
                numbers["selections", name, "surrogate"].append(epsilon)
                numbers["selections", name, "error"].append(error)
                divergence = math.nan
                if distance is not None:
                    divergence = float(distance(logits, whole, 1.0))
                    numbers["selections", name, "divergence"].append(divergence)
                numbers["selections", name, "held"].append(float(len(held)))
                points[tuple(held.tolist())] = epsilon, error, divergence
            if len(points) > 1:
                surrogates, errors, divergences = zip(*points.values(), strict=True)
                numbers["order_agreement", "error"].append(order_agreement(surrogates, errors))
                if distance is not None:
                    numbers["order_agreement", "divergence"].append(order_agreement(surrogates, divergences))
    return {str(capacity): _tree(numbers) for capacity, numbers in found.items()}


def _selections(
    model: Model, own: Submodel, capacity: float, fisher: Tensor, magnitude: Tensor, generator: torch.Generator
) -> Iterator[tuple[str, Submodel]]:
    """Name -> slice, each of at most that share of the parameters, but the method's own."""
    yield "method", own
    costs = {"parameters": model.parameters}
    for name, scores in (("fisher", fisher.float()), ("magnitude", magnitude)):
        kept = model.chain(scores.cpu(), costs).kept(capacity)
        yield name, slice_of(model, {axis: torch.as_tensor(of) for axis, of in kept.items()})
    first = prefix(model, capacity)
    yield "prefix", first
    widths = {**model.axes.sizes, **dict(first.widths or ())}
    for _ in range(RANDOM):
        drawn = {axis: torch.randperm(n, generator=generator) for axis, n in model.axes.sizes.items()}
        yield "random", slice_of(model, {axis: of[: widths[axis]].sort().values for axis, of in drawn.items()})


def _units(model: Model, piece: Submodel) -> Tensor:
    """The channels that a slice holds, among those of all axes."""
    return torch.arange(model.axes.num_units) if piece.units is None else piece.units.cpu()


def _magnitude(model: Model, params: Params) -> Tensor:
    """Sum of the squared weights that read each channel; float32, shape ``(channels,)``."""
    gates = GateSum(readers(model.module, model.axes), model.axes, model.layout.names, {})
    values = model.layout.views(params.flat)
    return gates(values, values)


def _tree(numbers: dict[tuple[str, ...], list[float]]) -> dict[str, Any]:
    """Paths -> mean, spread and count as nested objects."""
    tree: dict[str, Any] = {}
    for path, values in numbers.items():
        branch = tree
        for key in path[:-1]:
            branch = branch.setdefault(key, {})
        over = spread(value for value in values if math.isfinite(value))
        branch[path[-1]] = None if over is None else asdict(over)
    return tree
