"""What the paper's theory says of a run, measured: surrogate, true masking error, its ranking assumptions.

The theory speaks of a client's ideal Fisher F_n at the present global model. It is computed here on all of the client's
examples, and the selections it compares are taken side by side at every capacity: top-k of F_n (``fisher``), of F_n²x̃²
(``ssp``, the surrogate's exact minimiser), of |x̃| (``magnitude``), by chance (``random``), and what the run's method
really extracts (``method``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedfibos.analysis.theory import (
    boundary_violations,
    coefficient_of_variation,
    dataset_fisher,
    dataset_gradient,
    jaccard,
    masking_coefficient,
    masking_error,
    order_agreement,
    surrogate,
)
from fedfibos.backend.topk import top_k
from fedfibos.common.norms import has_batch_norm
from fedfibos.common.statistics import spread
from fedfibos.method import Method, Scored
from fedfibos.methods._fisher import PerExampleError
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.steps.loss import loss_of
from fedfibos.submodel import Mask, Submodel, budget
from fedfibos.tasks.task import Loss
from fedfibos.types import Client, Dataset, State

READINGS: tuple[Literal["held", "dense"], ...] = ("held", "dense")
"""Of the masking error: see :class:`fedfibos.analysis.theory.MaskingError`."""


@dataclass(frozen=True)
class _Point:
    """One client's view of the global model: everything that does not depend on the capacity."""

    client: Client
    data: Dataset
    loss: Loss
    gradient: Tensor
    fisher: Tensor
    maintained: Tensor | None


def diagnose(
    method: Method,
    model: Model,
    state: State,
    params: Params,
    clients: Sequence[Client],
    capacities: Sequence[float],
    generator: torch.Generator,
    *,
    fisher_from: Literal["minibatch", "per_example"] | None = None,
    batch_size: int = 64,
) -> dict[str, Any]:
    """Measure what the paper's analysis assumes and bounds, at one checkpoint.

    Args:
        method: Extracts its own submodels.
        model: Architecture and layout.
        state: The method's state at the checkpoint.
        params: Global parameters x̃ there.
        clients: Whom to measure, with their training data; each is measured at every capacity.
        capacities: γ of the submodels; each below 1 (at 1 nothing is left out).
        generator: Stream of the random selections.
        fisher_from: How F_n is estimated; None: per example, or from minibatches of the client's own batch size where
            batch normalisation, or a layer that torch cannot map over examples, leaves no gradient of an example.
        batch_size: Examples a pass; per-example gradients need that many times the model's memory.

    Returns:
        A JSON-able object. Every ``{"mean", "sd", "n"}`` is over clients, ``sd`` None for one of them.

        - ``round``, ``clients``, ``fisher_from``, ``num_maskable``;
        - ``cv``: coefficient of variation of ``fisher``, ``maintained`` (f̄, absent without one) and ``magnitude``;
        - ``capacities`` -> ``str(γ)`` -> ``k``; ``selections`` -> name -> ``surrogate`` ε, ``error`` e_t and
          ``coefficient`` δ_t² by reading, ``jaccard`` with the magnitude selection, ``num_held``; ``violations``:
          share of boundary pairs violating Assumption 4, for ``fisher`` and ``maintained``; ``order_agreement`` by
          reading: how often ε orders e_t (Assumption 5) over pairs of distinct selections of k coordinates, absent
          where there is no pair.

    Raises:
        ValueError: No client, a client without data, no capacity, or one outside (0, 1).
    """
    _check(clients, capacities)
    if fisher_from is None:
        fisher_from = _possible(model, params, clients[0])
    values = params.flat[: params.layout.num_maskable]
    dispersion: dict[str, list[float]] = defaultdict(list)
    by_capacity: dict[float, dict[tuple[str, ...], list[float]]] = {c: defaultdict(list) for c in capacities}
    for client in clients:
        point = _point(model, params, state, method, client, fisher_from, batch_size)
        dispersion["fisher"].append(coefficient_of_variation(point.fisher))
        if point.maintained is not None:
            dispersion["maintained"].append(coefficient_of_variation(point.maintained))
        for capacity, found in by_capacity.items():
            submodel = method.extract(model, state, params, replace(client, capacity=capacity))
            _measure(model, params, point, capacity, submodel, generator, batch_size, found)
    return {
        "round": clients[0].round,
        "clients": [client.id for client in clients],
        "fisher_from": fisher_from,
        "num_maskable": values.numel(),
        "cv": {
            **{name: _summary(found) for name, found in dispersion.items()},
            "magnitude": coefficient_of_variation(values.abs()),
        },
        "capacities": {
            str(capacity): {"k": budget(capacity, values.numel()), **_nested(found)}
            for capacity, found in by_capacity.items()
        },
    }


def _possible(model: Model, params: Params, client: Client) -> Literal["minibatch", "per_example"]:
    """Per example, where the model gives an example a gradient of its own and torch can take it."""
    assert client.data is not None
    if has_batch_norm(model.module):
        return "minibatch"
    try:
        dataset_fisher(model, params, client.data.subset(torch.arange(1)), "per_example", loss=model.task.loss)
    except PerExampleError:
        return "minibatch"
    return "per_example"


def _check(clients: Sequence[Client], capacities: Sequence[float]) -> None:
    """Raise ValueError for what cannot be measured."""
    if not clients:
        raise ValueError("diagnose needs at least one client, got none")
    for client in clients:
        if client.data is None or len(client.data) == 0:
            raise ValueError(f"client {client.id} has no training example, diagnose needs at least 1")
    if not capacities:
        raise ValueError("diagnose needs at least one capacity, got none")
    for capacity in capacities:
        if not 0.0 < capacity < 1.0:
            raise ValueError(f"capacities to diagnose must be in (0, 1), where something is left out, got {capacity:g}")


def _point(
    model: Model,
    params: Params,
    state: State,
    method: Method,
    client: Client,
    fisher_from: Literal["minibatch", "per_example"],
    batch_size: int,
) -> _Point:
    """∇F_n(x̃) and F_n on all of the client's examples, under the loss it trains with."""
    assert client.data is not None
    local = client.local
    loss = loss_of(model.task, local, client.data.labels, model.device)
    size = local.batch_size if fisher_from == "minibatch" else batch_size
    return _Point(
        client,
        client.data,
        loss,
        dataset_gradient(model, params, client.data, batch_size=batch_size, loss=loss),
        dataset_fisher(model, params, client.data, fisher_from, batch_size=size, loss=loss),
        method.importance(state, params, client) if isinstance(method, Scored) else None,
    )


def _measure(
    model: Model,
    params: Params,
    point: _Point,
    capacity: float,
    submodel: Submodel,
    generator: torch.Generator,
    batch_size: int,
    found: dict[tuple[str, ...], list[float]],
) -> None:
    """Add one client's numbers at one capacity to ``found``."""
    layout = params.layout
    d, values = layout.num_maskable, params.flat[: layout.num_maskable]
    k = budget(capacity, d)
    own = torch.zeros(layout.size, device=params.flat.device)
    submodel.count_in(own, 1.0)
    weighted = point.fisher.double() * values.double().abs()  # in the order of F²x̃², which could underflow
    masks = {
        "method": own > 0,
        "fisher": _held(top_k(point.fisher, k), layout.size),
        "ssp": _held(top_k(weighted, k), layout.size),
        "magnitude": _held(top_k(values.abs(), k), layout.size),
        "random": _held(top_k(torch.rand(d, generator=generator).to(values.device), k), layout.size),
    }
    distinct: list[tuple[Tensor, float, dict[str, float]]] = []
    for name, held in masks.items():
        mask = Mask(held, int(held.sum()))
        error = masking_error(
            model, params, mask, point.data, gradient=point.gradient, batch_size=batch_size, loss=point.loss
        )
        errors = {"held": error.held, "dense": error.dense}
        epsilon = surrogate(point.fisher, values, held[:d])
        found["selections", name, "surrogate"].append(epsilon)
        for reading in READINGS:
            found["selections", name, "error", reading].append(errors[reading])
            coefficient = masking_coefficient(errors[reading], params.flat)
            found["selections", name, "coefficient", reading].append(coefficient)
        found["selections", name, "jaccard"].append(jaccard(held[:d], masks["magnitude"][:d]))
        found["selections", name, "num_held"].append(float(held[:d].sum()))
        if int(held[:d].sum()) == k and not any(torch.equal(held, other) for other, _, _ in distinct):
            distinct.append((held, epsilon, errors))
    for reading in READINGS:
        if len(distinct) > 1:
            agreement = order_agreement([e for _, e, _ in distinct], [e[reading] for _, _, e in distinct])
            found["order_agreement", reading].append(agreement)
    found["violations", "fisher"].append(boundary_violations(point.fisher, values, k))
    if point.maintained is not None:
        found["violations", "maintained"].append(boundary_violations(point.maintained, values, k))


def _held(selected: Tensor, size: int) -> Tensor:
    """The selection of maskable coordinates with everything that is always held."""
    held = torch.ones(size, dtype=torch.bool, device=selected.device)
    held[: selected.numel()] = selected
    return held


def _summary(found: Sequence[float]) -> dict[str, float | int | None]:
    """Mean and sample standard deviation over clients.

    Raises:
        ValueError: A number is not finite: the model at a mask gives none.
    """
    if bad := [number for number in found if not math.isfinite(number)]:
        raise ValueError(
            f"a number measured at a mask must be finite, got {bad[0]}: the masked model's outputs are not"
        )
    over = spread(found)
    assert over is not None
    return asdict(over)


def _nested(found: dict[tuple[str, ...], list[float]]) -> dict[str, Any]:
    """Paths -> summaries as nested objects."""
    tree: dict[str, Any] = {}
    for path, numbers in found.items():
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = _summary(numbers)
    return tree
