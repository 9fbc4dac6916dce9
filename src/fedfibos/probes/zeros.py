"""Parameters whose zeros a model cannot bear: a mask that empties a direction of a weight divides 0 by 0.

Weights written as length times direction (``torch.nn.utils.parametrizations.weight_norm``, or by hand in forward),
divided by a norm (``spectral_norm``, a root of mean squares), or a learned temperature.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedfibos.common.inputs import Inputs
from fedfibos.probes.trial import TrialCopy

LIFT = 0.1
"""Added to the size of biases: a layer without weights has an output then, which a later norm can be taken of."""


def intolerant_of_zeros(module: nn.Module, names: Sequence[str], example: Inputs) -> tuple[str, ...]:
    """Which of a module's tensors make its outputs or gradients infinite, or no numbers, once they are all zeros.

    All of them at once are tried first, so that a module that bears zeros costs two forward passes. Then one at a time,
    whole: where a row of zeros is too much, a tensor of them is.

    Args:
        module: Not changed and not run.
        names: The parameters to try.
        example: A batch.
    """
    try:
        trial = TrialCopy(module)
        if not _is_finite(trial, (), example, lift=0.0) or _is_finite(trial, names, example, lift=0.0):
            return ()
        lift = LIFT if _is_finite(trial, (), example, lift=LIFT) else 0.0
        return tuple(name for name in names if not _is_finite(trial, (name,), example, lift=lift))
    except Exception:  # what is wrong with the module is told where it is checked
        return ()


def _is_finite(trial: TrialCopy, zeroed: Sequence[str], example: Inputs, lift: float) -> bool:
    """Whether a training step is: the gradients of the logits, those that rule a class out (-∞) left aside."""
    trial.put_back()
    values = dict(trial.module.named_parameters())
    with torch.no_grad():
        for value in values.values():
            if lift and value.dim() == 1:
                value.abs_().add_(lift)
        for name in zeroed:
            values[name].zero_()
    with torch.enable_grad():
        logits = trial.logits(example)
    if bool((logits.isnan() | logits.isposinf()).any()):
        return False
    kept = logits[logits.isfinite()]
    if not kept.requires_grad:
        return len(kept) == logits.numel()
    trained = [value for value in values.values() if value.requires_grad]
    weights = torch.arange(1, len(kept) + 1, device=kept.device) / max(len(kept), 1)
    gradients = torch.autograd.grad((kept.float() * weights).sum(), trained, allow_unused=True)
    return all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)
