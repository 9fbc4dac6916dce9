"""Models that end in softmax, log-softmax or sigmoid: cross-entropy hardly learns from probabilities."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfibos.common.inputs import Inputs
from fedfibos.probes.trial import TrialCopy

TOLERANCE = 1e-4
"""Of a sum of probabilities."""


def probability_cautions(module: nn.Module, example: Inputs) -> list[str]:
    """A line where a model's outputs are probabilities, one a class or together, or logarithms of those.

    They are where every row sums to 1, or every output is between 0 and 1, whatever the inputs and the parameters are:
    random ones are tried beside those that there are, since rows of scores may happen to.

    Args:
        module: Not changed and not run.
        example: A batch of the data.
    """
    try:
        in_training, in_evaluation = (_kinds(module, example, training) for training in (True, False))
    except Exception:  # what is wrong with the module is told where it is checked
        return []
    if "probabilities" in in_training:
        return [
            "the model's outputs are probabilities (it ends in softmax), but the loss takes scores and applies softmax "
            "itself: it would hardly learn; return the values before softmax"
        ]
    if "logarithms" in in_training:
        return [
            "the model's outputs are logarithms of probabilities (it ends in log-softmax), but the loss takes scores "
            "and applies log-softmax itself: return the values before it"
        ]
    if "shares" in in_training:
        return [
            "the model's outputs lie between 0 and 1 whatever its inputs (as after sigmoid), but the loss takes scores "
            "and applies softmax itself: it would hardly learn; return the values before that"
        ]
    if "probabilities" in in_evaluation:
        return [
            "in evaluation the model's outputs are probabilities (it ends in softmax there): accuracies adjusted by "
            "class frequencies take them for scores; return the values before softmax"
        ]
    return []


def _kinds(module: nn.Module, example: Inputs, training: bool) -> set[str]:
    """What the outputs are for all inputs and parameters that are tried."""
    generator = torch.Generator().manual_seed(0)
    kinds = {"probabilities", "logarithms", "shares"}
    trial = TrialCopy(module)
    for scale in (0.0, 0.3, 1.0):
        for inputs in (example, _noise(example, generator)):
            trial.put_back()
            with torch.no_grad():
                for parameter in trial.module.parameters():
                    noise = torch.randn(parameter.shape, generator=generator)
                    if parameter.is_floating_point():
                        parameter.add_(noise, alpha=scale)
                logits = trial.logits(inputs, training=training).double()
            if logits.dim() != 2 or logits.shape[1] < 2:
                return set()
            if bool((logits < 0).any()) or not _is_one(logits.sum(1)):
                kinds.discard("probabilities")
            if bool((logits > 0).any()) or not _is_one(logits.exp().sum(1)):
                kinds.discard("logarithms")
            if bool(((logits < 0) | (logits > 1)).any()):
                kinds.discard("shares")
            if not kinds:
                return kinds
    return kinds


def _is_one(sums: Tensor) -> bool:
    return bool((sums - 1).abs().max() < TOLERANCE)


def _noise(example: Inputs, generator: torch.Generator) -> Inputs:
    """Inputs of the same shapes: random numbers for numbers, the same again for what counts or names something."""

    def like(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return torch.randn(tensor.shape, generator=generator).to(tensor.dtype) * 3

    return like(example) if isinstance(example, Tensor) else {name: like(tensor) for name, tensor in example.items()}
