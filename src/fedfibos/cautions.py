"""What to warn of before a fleet trains: layers that a submodel has nothing of, and what the method itself knows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedfibos.method import Cautious, Method
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.selections import dead_layers
from fedfibos.submodel import budget, held_maskable, holding
from fedfibos.types import Client, State

MORE_BY_ROUNDING = 1
"""Parameters a tensor that a share of every layer or group, rounded up, may have above that of the whole."""


def cautions(method: Method, model: Model, state: State, params: Params, clients: Sequence[Client]) -> list[str]:
    """One line for every capacity whose submodel has a dead layer, or more than its share; then the method's own.

    Args:
        method: The method.
        model: Architecture and layout.
        state: The method's state.
        params: The global parameters.
        clients: The fleet; of each capacity the first is looked at.
    """
    first = {client.capacity: client for client in reversed(clients)}
    lines = []
    for capacity in sorted(first):
        submodel = method.extract(model, state, params, first[capacity])
        allowed, held = budget(capacity, model.layout.num_maskable), held_maskable(submodel, model.layout)
        if held > allowed + MORE_BY_ROUNDING * model.layout.num_maskable_tensors:
            lines.append(
                f"capacity {capacity:g}: the submodel holds {held:,} of {model.layout.num_maskable:,} maskable "
                f"parameters, {allowed:,} are its share: no comparison at equal capacity"
            )
        if dead := dead_layers(submodel, model.layout):
            more = f" and {len(dead) - 1} more" if len(dead) > 1 else ""
            lines.append(
                f"capacity {capacity:g}: the submodel holds nothing of layer {dead[0]!r}{more}; a dead layer passes no "
                'gradient (method.scope = "layer" gives every tensor a share, model.held keeps one whole)'
            )
    least = [client for client in clients if client.capacity == min(first)]
    if not method.personal and len(least) > 1:
        two = (least[0], least[-1])
        one, other = (holding(method.extract(model, state, params, client), model.layout.size) for client in two)
        if not torch.equal(one, other):
            lines.append(
                f"method.personal is False, but clients {two[0].id} and {two[1].id} of capacity {min(first):g} hold "
                "different submodels: all of a capacity are given the first one's"
            )
    return lines + (method.cautions(model, sorted(first)) if isinstance(method, Cautious) else [])
