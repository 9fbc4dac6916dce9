"""Where the channels of an axis are read: the weights that a channel's values are multiplied by.

A gate on a channel, put where its values enter the layers that read it, has the derivative Σ x·∂L/∂x over these
weights. What only hands a channel on (a normalisation, a depthwise convolution, a grouped one whose units are
whole groups) reads nothing: behind it the channel is still the same, and is read later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fedfibos.channels.axes import Axes, Dimension, Part
from fedfibos.params import is_normalisation

_BY_ROWS = (nn.modules.conv._ConvNd, nn.Linear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear)


@dataclass(frozen=True)
class Reader:
    """One dimension of a tensor whose entries multiply the values of channels.

    Attributes:
        tensor: Name of the parameter.
        dim: The dimension.
        parts: What lies along it.
        count: How many of the parts are read, the first ones.
    """

    tensor: str
    dim: int
    parts: Dimension
    count: int


def readers(module: nn.Module, axes: Axes) -> list[Reader]:
    """The dimensions where the axes are read, in the order of the module's layers.

    An axis that no weight reads (queries and keys, which meet each other) is gated where its first layer gives it out:
    the same sum then runs over the rows and biases of that layer. A tensor that both gives out a channel and reads it
    (an embedding tied to the classifier) counts in both uses. Frozen weights have no gradient to tell of: what reads a
    channel through them alone is not seen.
    """
    names = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    found: dict[tuple[str, int], Reader] = {}
    for layer in module.modules():
        for own, p in _own(layer):
            if id(p) not in names:
                continue
            name = names[id(p)]
            bias = getattr(layer, "bias", None)
            gives = axes.dims[names[id(bias)]] if id(bias) in names and bias is not p else ()
            at = axes.classes.get(name)
            for dim, count in _read_by(layer, own, p, axes.dims[name], gives if at is None else (axes.dims[name][at],)):
                if any(part.axis is not None for part in axes.dims[name][dim]):
                    found.setdefault((name, dim), Reader(name, dim, axes.dims[name][dim], count))
    read = {part.axis for reader in found.values() for part in reader.parts[: reader.count]}
    for axis in axes.sizes:
        if axis not in read:
            found |= {(reader.tensor, reader.dim): reader for reader in _given_out(module, names, axes, axis)}
    return list(found.values())


def _own(layer: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A layer's own parameters, those of a parametrization of them (``weight_norm``) included."""
    if isinstance(layer, nn.utils.parametrize.ParametrizationList):
        return
    yield from layer.named_parameters(recurse=False)
    if nn.utils.parametrize.is_parametrized(layer):
        for name, tensor in layer.parametrizations.named_parameters():  # type: ignore[union-attr]
            yield name.partition(".")[0], tensor


def _read_by(
    layer: nn.Module, own: str, tensor: Tensor, dims: tuple[Dimension, ...], gives: tuple[Dimension, ...]
) -> Iterator[tuple[int, int]]:
    """Dimensions of one of a layer's tensors that meet its inputs, and how many parts of each do.

    Of a layer of the user's, what it gives out, ``gives``, is the classes or what its bias has; where neither tells,
    what comes first.
    """
    if isinstance(layer, nn.modules.conv._ConvNd):
        dim = 0 if layer.transposed else 1
        if tensor.dim() > 1 and (layer.groups == 1 or _within(dims[dim], layer, tensor)):
            yield dim, len(dims[dim])
    elif isinstance(layer, _BY_ROWS):
        if own not in _ADDED:
            yield from ((dim, len(dims[dim])) for dim in range(1, len(dims)))
        if isinstance(layer, nn.MultiheadAttention) and own in _QUERIES and _alike(dims[0], layer.num_heads):
            yield 0, len(dims[0]) // _QUERIES[own]
    elif not is_normalisation(layer) and not isinstance(layer, nn.Embedding):
        if own == "bias":
            return
        cut = [dim for dim, parts in enumerate(dims) if any(part.axis is not None for part in parts)]
        given = [dims.index(parts) for parts in gives if parts != (Part(None),) and parts in dims] or cut[:1]
        yield from ((dim, len(dims[dim])) for dim in cut if dim not in given)


def _within(parts: Dimension, layer: nn.modules.conv._ConvNd, tensor: Tensor) -> bool:
    """Whether a grouped convolution reads channels within its groups, all of which stay.

    Of whole groups that go it hands the units on.
    """
    if not layer.transposed:
        return True  # there is one group along this dimension of its weight
    return all(part.axis is None or part.before % layer.groups == 0 for part in parts)


_ADDED = ("bias_k", "bias_v")
"""Tensors of an attention layer that are a key and a value of their own, and meet no inputs."""

_QUERIES = {"in_proj_weight": 3, "in_proj_bias": 3, "q_proj_weight": 1}
"""Tensors of an attention layer whose first rows, one in so many, make queries."""


def _alike(rows: Dimension, num_heads: int) -> bool:
    """Whether heads are cut alike: then the product of queries and keys reads each of their positions."""
    return all(part.axis is not None and part.before % num_heads == 0 for part in rows)


def _given_out(module: nn.Module, names: Mapping[int, str], axes: Axes, axis: str) -> Iterator[Reader]:
    """The rows and biases of the first layer that gives an axis out."""
    for layer in module.modules():
        if is_normalisation(layer):
            continue
        own = [names[id(p)] for _, p in _own(layer) if id(p) in names]
        rows = [
            Reader(name, dim, parts, len(parts))
            for name in own
            for dim, parts in enumerate(axes.dims[name])
            if any(part.axis == axis for part in parts)
        ]
        if rows:
            yield from rows
            return


class GateSum:
    """∂L/∂m of the gates of all channels, from parameters and their gradients.

    Args:
        found: From :func:`readers`.
        axes: The model's axes.
        names: Parameters in the order in which they are given, at those widths.
        widths: Axis -> channels; axes left out have all.
    """

    def __init__(self, found: Sequence[Reader], axes: Axes, names: Sequence[str], widths: Mapping[str, int]) -> None:
        sizes = {**axes.sizes, **widths}
        first, start = {}, 0
        for axis in axes.sizes:
            first[axis], start = start, start + sizes[axis]
        self.num_units = start
        place = {name: k for k, name in enumerate(names)}
        self._sums: list[tuple[int, int, int, tuple[int, int, int], int]] = []
        for reader in found:
            offset = 0
            for part in reader.parts[: reader.count]:
                if part.axis is not None:
                    shape = part.before, sizes[part.axis], part.after
                    self._sums.append((place[reader.tensor], reader.dim, offset, shape, first[part.axis]))
                offset += part.length(sizes)

    def __call__(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
        """float32, shape ``(channels of all axes,)``, axis after axis."""
        gates = gradients[0].new_zeros(self.num_units)
        along: dict[tuple[int, int], Tensor] = {}
        for k, dim, offset, (before, width, after), first in self._sums:
            if (k, dim) not in along:
                product = parameters[k].detach() * gradients[k]
                others = [other for other in range(product.dim()) if other != dim]
                along[k, dim] = product.sum(others) if others else product
            piece = along[k, dim][offset : offset + before * width * after]
            gates[first : first + width] += piece.view(before, width, after).sum((0, 2))
        return gates
