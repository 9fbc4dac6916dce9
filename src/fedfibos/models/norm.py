"""Normalisation layers of the bundled image models."""

from __future__ import annotations

from torch import nn

GROUP_SIZE = 4
"""Channels per group of GroupNorm.

The number of channels in a group is fixed, not the number of groups, so that a narrower model made of
whole groups normalises each of its groups exactly as the full model does.
"""


def norm2d(norm: str, num_channels: int) -> nn.Module:
    """The normalisation of a feature map.

    Args:
        norm: ``group``: GroupNorm in groups of :data:`GROUP_SIZE` channels (Wu and He, arXiv:1803.08494).
            ``batch``: BatchNorm2d; evaluation first recomputes its running statistics on training data.
            ``none``: identity.
        num_channels: Channels of the feature map; with ``group`` a multiple of :data:`GROUP_SIZE`.

    Raises:
        ValueError: Unknown ``norm``, or channels that don't divide into groups.
    """
    if norm == "batch":
        return nn.BatchNorm2d(num_channels)
    if norm == "none":
        return nn.Identity()
    if norm != "group":
        raise ValueError(f"norm must be 'group', 'batch' or 'none', got {norm!r}")
    if num_channels % GROUP_SIZE:
        raise ValueError(f"norm 'group' needs channels in multiples of {GROUP_SIZE}, got {num_channels}")
    return nn.GroupNorm(num_channels // GROUP_SIZE, num_channels)


def image_channels(input_shape: tuple[int, ...], model: str) -> int:
    """The number of channels of ``(channels, height, width)``.

    Raises:
        ValueError: Another number of dimensions.
    """
    if len(input_shape) != 3:
        raise ValueError(f"{model} needs inputs of shape (channels, height, width), got {tuple(input_shape)}")
    return input_shape[0]
