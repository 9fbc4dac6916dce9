"""What to warn of before a fleet trains: layers that a submodel has nothing of, and what the method itself knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fedfibos.analysis.selections import dead_layers
from fedfibos.channels.whole import trained_whole, whole_share
from fedfibos.common.inputs import copied, forward
from fedfibos.common.streams import stream
from fedfibos.common.user_code import describe_error
from fedfibos.local import seeded
from fedfibos.method import Cautious, Method, extract_submodel
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.probes.flat_norms import flat_norms
from fedfibos.probes.probabilities import probability_cautions
from fedfibos.probes.reach import reach_cautions
from fedfibos.probes.state import state_cautions
from fedfibos.submodel import Submodel, budget, held_maskable, holding
from fedfibos.types import Client, State

MORE_BY_ROUNDING = 1
"""Parameters a tensor that a share of every layer or group, rounded up, may have above that of the whole."""


def cautions(method: Method, model: Model, state: State, params: Params, clients: Sequence[Client]) -> list[str]:
    """One line for every capacity whose submodel has a dead layer, more than its share, or outputs that are no numbers.

    Also for a slice that leaves a layer of normalisation next to nothing. Then the method's own. The outputs are those
    of the model's example, where it has one.

    Args:
        method: The method.
        model: Architecture and layout.
        state: The method's state.
        params: The global parameters.
        clients: The fleet; of each capacity the first is looked at.

    Raises:
        ValueError: A submodel on which the model fails, as a slice may that is too narrow for what forward does.
    """
    first = {client.capacity: client for client in reversed(clients)}
    lines = _of_the_model(model)
    masked = False
    sliced = False
    trial = model.with_own_workspaces()  # clients train in the model's: nothing of this is left there
    for capacity in sorted(first):
        submodel = extract_submodel(method, model, state, params, first[capacity])
        allowed, held = budget(capacity, model.layout.num_maskable), held_maskable(submodel, model.layout)
        masked |= submodel.indicator is not None
        sliced |= submodel.widths is not None
        shared = masked or "parameters" in first[capacity].budget
        if shared and held > allowed + MORE_BY_ROUNDING * model.layout.num_maskable_tensors:
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
        lines += _flat(trial, params, submodel, capacity)
        try:
            layer = _not_finite(trial, params, submodel)
        except Exception as error:
            raise ValueError(
                f"capacity {capacity:g}: the model fails as a submodel of {held:,} parameters: {describe_error(error)}"
            ) from error
        if layer is not None:
            at = f" from layer {layer!r} on" if layer else ""
            chosen = submodel.held is not None and held < model.layout.num_maskable
            advice = "; hold it whole with model.held" if chosen else ""
            lines.append(f"capacity {capacity:g}: the outputs of the submodel are not finite{at}{advice}")
    bounds = clients[0].budget
    if bounds != ("parameters",) and masked:
        lines.append(
            f"federation.budget = {list(bounds)}: masks are trained in the shape of the whole model, whose memory and "
            "operations every capacity takes; their capacities are shares of the parameters"
        )
    least = [client for client in clients if client.capacity == min(first)]
    if not method.personal and len(least) > 1:
        two = (least[0], least[-1])
        one, other = (
            holding(extract_submodel(method, model, state, params, client), model.layout.size) for client in two
        )
        if not torch.equal(one, other):
            lines.append(
                f"method.personal is False, but clients {two[0].id} and {two[1].id} of capacity {min(first):g} hold "
                "different submodels: all of a capacity are given the first one's"
            )
    lines += _uncut(model) if sliced else []
    return lines + (method.cautions(model, sorted(first)) if isinstance(method, Cautious) else [])


def _of_the_model(model: Model) -> list[str]:
    """What running copies of the module on the example tells, where there is one, whatever the method."""
    if model.example is None:
        return []
    lines = [_held_whole(model)] if model.whole else []
    lines += state_cautions(model.module, model.example)
    lines += reach_cautions(model.module, model.example)
    if model.task.gives != "logits":
        return lines
    applied = "sigmoid" if model.task.name == "multilabel" else "softmax"
    return lines + probability_cautions(model.module, model.example, applied)


def _uncut(model: Model) -> list[str]:
    """What slices of the model cannot cut, why, and its share of the parameters that capacities count."""
    trained = trained_whole(model.axes, model.module)
    if not trained:
        return []
    (first, why), *others = trained.items()
    more = f" and {len(others)} more stay" if others else " stays"
    share = whole_share(model.axes, model.layout)
    return [
        f"{first!r}{more} whole in every slice: {why}. That is {share:.1%} of the maskable parameters, which count "
        "against each budget"
    ]


def _held_whole(model: Model) -> str:
    """Which parameters no capacity chooses from, as the model divides by them."""
    more = f" and {len(model.whole) - 1} more" if len(model.whole) > 1 else ""
    return (
        f"the model divides by parameter {model.whole[0]!r}{more}, or by a norm of it, so every client holds it whole: "
        f"capacities choose from {model.layout.num_maskable:,} of {model.layout.size:,} parameters"
    )


def _flat(model: Model, params: Params, submodel: Submodel, capacity: float) -> list[str]:
    """What a slice leaves too few channels to normalise over, where the whole model has more."""
    if model.example is None or submodel.widths is None:
        return []
    flat = flat_norms(model.workspace(submodel).load(submodel.gather(params.flat)), model.place(model.example))
    if flat:
        flat = {name: values for name, values in flat.items() if name not in flat_norms(model.module, model.example)}
    if not flat:
        return []
    (first, values), *others = flat.items()
    more = f" and {len(others)} more normalise" if others else " normalises"
    return [
        f"capacity {capacity:g}: layer {first!r}{more} over {values} value{'s' * (values > 1)}: all but signs is lost "
        "there, and nothing before it learns; use a larger capacity, a method of masks, or a norm that needs no other "
        "channels (batch)"
    ]


def _not_finite(model: Model, params: Params, submodel: Submodel) -> str | None:
    """The layer from which on a submodel's outputs are not finite; empty where none is known, None where they are.

    Of the model's example, in evaluation mode.
    """
    if model.example is None:
        return None
    module = model.workspace(submodel).load(submodel.gather(params.flat)).eval()
    layers: list[str] = []

    def note(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(layer: nn.Module, inputs: object, output: object) -> None:
            if not isinstance(output, Tensor) or output.is_nested:  # as a transformer's fast path hands on
                return
            try:
                wrong = output.is_floating_point() and not output.isfinite().all()
            except RuntimeError:  # inside torch.vmap nobody may look at values
                return
            if wrong:
                layers.append(name.partition(".parametrizations")[0])

        return hook

    hooks = [layer.register_forward_hook(note(name)) for name, layer in module.named_modules() if name]
    try:
        with torch.no_grad(), seeded(stream(0, "evaluation"), model.device):
            outputs = forward(module, copied(model.place(model.example)))
            largest = outputs.amax(1) if outputs.dim() > 1 else outputs  # -∞ rules a class out
    finally:
        for hook in hooks:
            hook.remove()
    if largest.isfinite().all():
        return None
    return layers[0] if layers else ""
