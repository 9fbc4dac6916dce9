"""Normalisation layers of the bundled image models."""

from __future__ import annotations

from torch import nn

GROUP_SIZE = 4
"""Default number of channels in a group of GroupNorm.

The size of a group is fixed, not the number of groups, so that a narrower model made of whole groups normalises each
of them exactly as the full model does. Groups are then the unit of slicing: small ones fit a budget more closely
(resnet8 at capacity .125 realises .065 in groups of 4 and .105 in groups of 2), larger ones normalise less away.
"""


def norm2d(norm: str, num_channels: int, group_size: int = GROUP_SIZE) -> nn.Module:
    """The normalisation of a feature map.

    Args:
        norm: ``group``: GroupNorm in groups of ``group_size`` channels (Wu and He, arXiv:1803.08494).
            ``batch``: BatchNorm2d; evaluation first recomputes its running statistics on training data.
            ``none``: identity.
        num_channels: Channels of the feature map; with ``group`` a multiple of ``group_size``.
        group_size: Channels in a group.

    Raises:
        ValueError: Unknown ``norm``, or channels that don't divide into groups.
    """
    if norm == "batch":
        return nn.BatchNorm2d(num_channels)
    if norm == "none":
        return nn.Identity()
    if norm != "group":
        raise ValueError(f"norm must be 'group', 'batch' or 'none', got {norm!r}")
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}")
    if num_channels % group_size:
        raise ValueError(f"norm 'group' needs channels in multiples of {group_size}, got {num_channels}")
    return nn.GroupNorm(num_channels // group_size, num_channels)


def image_channels(input_shape: tuple[int, ...], model: str) -> int:
    """The number of channels of ``(channels, height, width)``.

    Raises:
        ValueError: Another number of dimensions.
    """
    if len(input_shape) != 3:
        raise ValueError(
            f"{model} needs inputs of shape (channels, height, width), got {tuple(input_shape)}: these are no images; "
            "model.name = 'mlp' takes any shape"
        )
    return input_shape[0]
