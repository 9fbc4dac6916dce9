"""What a client of some capacity holds in a method's first round, and the values that it starts from."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedfibos.method import Method
from fedfibos.model import Model
from fedfibos.params import Layout, Params
from fedfibos.round import submodel_for
from fedfibos.submodel import Slice, Submodel
from fedfibos.types import Client


class NeedsValuesError(Exception):
    """A method chooses a submodel by values that a model without weights does not have."""


def first_round(method: Method, model: Model, client: Client) -> tuple[Params, Submodel]:
    """The parameters and the submodel of a client's first round.

    Of a model that has values: the global parameters, and the submodel of them. Of one that has only shapes, on a
    device that never sees the whole model: a slice as its client sees it, with values made up.

    Args:
        method: Extracts the submodel.
        model: The model.
        client: Its capacity, budget and nested family count.

    Raises:
        ValueError: The method has no submodel of that capacity.
        NeedsValuesError: It has none that it can choose without values.
    """
    params = model.initial_params()
    try:
        submodel = submodel_for(method, model, method.init(params), params, client)
    except (NotImplementedError, RuntimeError) as error:  # of torch, where it is asked for values
        if model.has_values:
            raise
        raise NeedsValuesError(f"the method needs the model's values: {str(error).splitlines()[0]}") from error
    if model.has_values:
        return params, submodel
    if isinstance(submodel, Slice):
        seen = model.axes.own_view(model.layout, dict(submodel.widths))
        submodel = replace(seen, nested=submodel.nested)
    return made_up(submodel.local_layout(model.layout)), submodel


def made_up(layout: Layout) -> Params:
    """Values of a size that signals pass: normal weights of variance one over the fan-in, and ones for vectors."""
    flat, generator = torch.ones(layout.size), torch.Generator().manual_seed(0)
    for view in layout.views(flat):
        if view.dim() > 1:
            view.normal_(0.0, max(view[0].numel(), 1) ** -0.5, generator=generator)
    return Params(layout, flat)
