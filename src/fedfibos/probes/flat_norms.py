"""Normalisation over so few values that only signs are left: nothing before such a layer can learn.

A LayerNorm of one value gives its bias, whatever the value. One of two values gives 1 and -1, as RMSNorm of one value
does. Their outputs change where the order or the sign of the values does, and are flat elsewhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fedfibos.common.draws import fixed_draws
from fedfibos.common.inputs import Inputs, copied, forward
from fedfibos.probes.trial import TrialCopy


def flat_norms(module: nn.Module, example: Inputs) -> dict[str, int]:
    """Name of a torch layer that normalises over so few values of an example -> how many.

    LayerNorm, GroupNorm and RMSNorm. Nothing where the module cannot run: that is told elsewhere.

    Args:
        module: Not changed and not run.
        example: A batch of inputs.
    """
    found: dict[str, int] = {}
    try:
        trial = TrialCopy(module)
        for name, layer in trial.module.named_modules():
            if isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
                _note(found, name, layer, math.prod(layer.normalized_shape))
            elif isinstance(layer, nn.GroupNorm):
                layer.register_forward_hook(
                    lambda layer, inputs, _, name=name: _note(found, name, layer, _of_a_group(layer, inputs[0]))
                )
        with torch.no_grad(), fixed_draws(0):
            forward(trial.module.eval(), copied(example))
    except Exception:  # what is wrong with the module is told where it is checked
        return found
    return found


def _note(found: dict[str, int], name: str, layer: nn.Module, values: int) -> None:
    if values <= (1 if isinstance(layer, nn.RMSNorm) else 2):
        found[name] = values


def _of_a_group(layer: nn.GroupNorm, inputs: Tensor) -> int:
    """Values that a GroupNorm normalises together: channels of a group, at all positions."""
    return layer.num_channels // layer.num_groups * math.prod(inputs.shape[2:])
