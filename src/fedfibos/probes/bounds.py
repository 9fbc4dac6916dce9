"""Models of numbers whose outputs have an end (a last sigmoid, tanh or ReLU) that their targets lie beyond."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedfibos.common.inputs import Inputs
from fedfibos.probes.trial import TrialCopy

TRIES = 24
"""Random parameters that are tried: outputs without a bound are on one side of it by chance once in 2**24."""

FLOORS, CEILING = (0.0, -1.0), 1.0
"""Where outputs may end: those of sigmoid, tanh, ReLU."""


def bound_cautions(module: torch.nn.Module, example: Inputs, targets: Tensor) -> list[str]:
    """A line where a model's outputs never go beyond a number that some targets lie beyond.

    Args:
        module: Not changed and not run.
        example: A batch of the data.
        targets: Those of the training examples.
    """
    try:
        low, high = _range(module, example)
    except Exception:  # what is wrong with the module is told where it is checked
        return []
    least, most = float(targets.min()), float(targets.max())
    lines = [f"never below {end:g}, but targets go down to {least:.3g}" for end in FLOORS if low >= end > least][:1]
    if high <= CEILING < most:
        lines.append(f"never above {CEILING:g}, but targets go up to {most:.3g}")
    return [
        f"the model's outputs are {line}, whatever its parameters are: it cannot give them; leave out what it ends in "
        "(sigmoid, tanh, ReLU), or scale the targets"
        for line in lines
    ]


def _range(module: torch.nn.Module, example: Inputs) -> tuple[float, float]:
    """The least and the largest output over random parameters."""
    generator, trial = torch.Generator().manual_seed(0), TrialCopy(module)
    low, high = math.inf, -math.inf
    for _ in range(TRIES):
        trial.put_back()
        with torch.no_grad():
            for parameter in trial.module.parameters():
                if parameter.is_floating_point():
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=3.0)
            outputs = trial.logits(example)
        low, high = min(low, float(outputs.min())), max(high, float(outputs.max()))
    return low, high
