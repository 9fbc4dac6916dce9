"""Which tensor of a layer tells the channels that it gives."""

from __future__ import annotations

from torch import Tensor, nn

_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def outputs_of(module: nn.Module) -> tuple[dict[str, tuple[Tensor, int]], list[str]]:
    """Where the channels lie that the layers of a module give.

    Returns:
        Name of a layer -> one of its tensors and the dimension of it, in the order of the model; and the
        names of the parameters that belong to none of these.
    """
    layers: dict[str, tuple[Tensor, int]] = {}
    covered: set[int] = set()
    for name, layer in module.named_modules():
        place = _place(layer)
        if place is not None:
            layers[name] = place
            covered |= {id(p) for p in layer.parameters()}
    return layers, [name for name, p in module.named_parameters() if id(p) not in covered]


def _place(layer: nn.Module) -> tuple[Tensor, int] | None:
    """A tensor of a layer and the dimension of its outputs; None where it is no layer."""
    if nn.utils.parametrize.is_parametrized(layer):
        return None
    if isinstance(layer, nn.modules.conv._ConvNd):
        return (layer.weight, 1 if layer.transposed and layer.groups == 1 else 0)
    if isinstance(layer, (nn.Linear, nn.Bilinear)):
        return layer.weight, 0
    if isinstance(layer, nn.Embedding):
        return layer.weight, 1
    if isinstance(layer, nn.MultiheadAttention):
        return layer.out_proj.weight, 0
    if isinstance(layer, nn.RNNBase):
        return layer.all_weights[0][1], 1
    if isinstance(layer, nn.RNNCellBase):
        return layer.weight_hh, 1
    if isinstance(layer, _NORMS) and getattr(layer, "weight", None) is not None:
        return layer.weight, layer.weight.dim() - 1
    own = dict(layer.named_parameters(recurse=False))
    if own.keys() == {"weight", "bias"} and own["bias"].dim() == 1:  # a layer of the user's
        return own["bias"], 0
    return None
