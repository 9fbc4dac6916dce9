"""A really smaller copy of a module, from its table of named axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from fedfibos.channels.axes import Axes, Dimension, Part
from fedfibos.channels.sites import fit, narrow_position
from fedfibos.common.copies import copy_module
from fedfibos.common.unallocated import nowhere


def resize_module(module: nn.Module, axes: Axes, widths: Mapping[str, int]) -> nn.Module:
    """A copy of the module with smaller tensors, whose forward works.

    The sizes that torch's own layers keep as attributes follow their tensors. The values are those of the first
    channels; a caller overwrites them. Tied and shared tensors stay so; the large tensors are never copied.

    Args:
        module: The full model; not changed.
        axes: Its named axes.
        widths: Axis -> number of channels; axes left out keep all.
    """
    small: dict[int, Any] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if name in axes.dims:
            small[id(tensor)] = _shrunk(tensor, axes.shape(name, widths))
    narrow = copy_module(module, small)  # takes the small tensors for copies it already made
    sizes = {**axes.sizes, **widths}
    with _at_rest(narrow):
        for name, layer in narrow.named_modules():
            if isinstance(layer, nn.modules.conv._ConvNd):
                _set_conv_sizes(layer, _rows_of(axes, name, layer), axes.sizes, sizes)
                continue
            features = axes.features.get(name)
            _set_sizes(layer, None if features is None else sum(part.length(sizes) for part in features))
    if axes.sites:
        fit(narrow, axes, widths)
    return narrow


@contextmanager
def _at_rest(module: nn.Module) -> Iterator[None]:
    """In evaluation mode: in training, reading a weight of spectral norm changes its buffers."""
    modes = [(layer, layer.training) for layer in module.modules()]
    try:
        for layer, _ in modes:
            layer.training = False
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode


def _shrunk(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The leading entries of every dimension, as a tensor of its own."""
    if tensor.is_meta:
        return nowhere(shape, tensor)
    values = tensor.detach()[tuple(slice(length) for length in shape)].clone()
    return nn.Parameter(values, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else values


_GATES = {"LSTM": 4, "GRU": 3}
"""Rows of a recurrent layer's weights for each hidden channel; one in a plain one."""


def keeps_group_size(num_groups: int, num_channels: int) -> bool:
    """How a narrower GroupNorm groups its channels.

    Many small groups: whole groups go and the others stay as they are, so that a slice normalises exactly as the
    full model does. Few large groups (two halves; one group is LayerNorm): their number stays and each gets narrower,
    and the slice normalises over fewer channels than the full model.
    """
    return num_groups >= num_channels // num_groups


def _set_sizes(layer: nn.Module, num_features: int | None) -> None:
    """Make the attributes of one of torch's layers agree with its tensors.

    Args:
        layer: The layer, its tensors already small.
        num_features: Channels of a normalisation layer without parameters; None where the tensors tell.
    """
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        layer.num_embeddings, layer.embedding_dim = layer.weight.shape
    elif isinstance(layer, nn.MultiheadAttention):
        layer.embed_dim = layer.kdim = layer.vdim = layer.out_proj.weight.shape[0]
        if layer.q_proj_weight is not None:
            layer.kdim, layer.vdim = layer.k_proj_weight.shape[1], layer.v_proj_weight.shape[1]
        layer.head_dim = layer.embed_dim // layer.num_heads
    elif isinstance(layer, nn.Transformer):
        attention = next((part for part in layer.modules() if isinstance(part, nn.MultiheadAttention)), None)
        layer.d_model = layer.d_model if attention is None else attention.out_proj.weight.shape[0]
    elif isinstance(layer, nn.RNNBase):
        from_input, from_hidden = layer.all_weights[0][:2]
        layer.input_size, layer.hidden_size = from_input.shape[1], from_input.shape[0] // _GATES.get(layer.mode, 1)
        layer.proj_size = from_hidden.shape[1] if layer.proj_size else 0
    elif isinstance(layer, nn.RNNCellBase):
        layer.input_size, layer.hidden_size = layer.weight_ih.shape[1], layer.weight_hh.shape[1]
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = layer.weight.numel()
    else:
        _set_norm_sizes(layer, num_features)


def _rows_of(axes: Axes, name: str, conv: nn.modules.conv._ConvNd) -> Dimension:
    """What lies along the first dimension of a convolution's weight, or of what makes it (``weight_norm``)."""
    wanted, prefix = conv.in_channels if conv.transposed else conv.out_channels, f"{name}." if name else ""
    own = (dims[0] for tensor, dims in axes.dims.items() if tensor.startswith(prefix) and len(dims) > 1)
    rows = (dim for dim in own if sum(part.length(axes.sizes) for part in dim) == wanted)
    return next(rows, (Part(None, after=wanted),))


def _set_conv_sizes(
    conv: nn.modules.conv._ConvNd, rows: Dimension, full: Mapping[str, int], narrow: Mapping[str, int]
) -> None:
    """Channels from the weight; a grouped convolution has lost whole groups, or channels of each."""
    first, second = conv.weight.shape[:2]
    if conv.groups > 1:
        in_a_group = (conv.in_channels if conv.transposed else conv.out_channels) // conv.groups
        conv.groups = first // narrow_position(rows, in_a_group, full, narrow)
    channels = (first, second * conv.groups)
    conv.kernel_size = tuple(conv.weight.shape[2:])
    conv.in_channels, conv.out_channels = channels if conv.transposed else channels[::-1]


def _set_norm_sizes(layer: nn.Module, num_features: int | None) -> None:
    own = dict(layer.named_parameters(recurse=False))
    if "weight" in own and own["weight"].dim() > 0:
        num_features = own["weight"].shape[-1]
    if num_features is None:
        return
    if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
        layer.normalized_shape = (*layer.normalized_shape[:-1], num_features)
    elif isinstance(layer, nn.modules.batchnorm._NormBase):
        layer.num_features = num_features
    elif isinstance(layer, nn.GroupNorm):
        if keeps_group_size(layer.num_groups, layer.num_channels):
            layer.num_groups = layer.num_groups * num_features // layer.num_channels
        layer.num_channels = num_features
