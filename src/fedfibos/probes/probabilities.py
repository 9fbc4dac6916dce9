"""Models whose outputs are no scores, whatever their parameters are: cross-entropy learns little from these.

Probabilities after softmax or sigmoid, their logarithms, what ReLU leaves, and what does not depend on inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfibos.common.inputs import Inputs
from fedfibos.probes.trial import TrialCopy

TOLERANCE = 1e-4
"""Of a sum of probabilities."""

ROUNDING = 1e-5
"""Of the largest score: how far those of two examples may be apart that a model makes without looking at them."""


def probability_cautions(module: nn.Module, example: Inputs, applied: str = "softmax") -> list[str]:
    """A line where a model's outputs are no scores, such as probabilities, one a class or together, or logarithms.

    They are where every row sums to 1, or every output is between 0 and 1, whatever the inputs and the parameters are:
    random ones are tried beside those that there are, since rows of scores may happen to. Classes lie along the second
    dimension, or the last. So it is found too where they lie on one side of 0 and reach it, or are the same for
    different inputs.

    Args:
        module: Not changed and not run.
        example: A batch of the data.
        applied: What the loss applies to the outputs: ``softmax``, or ``sigmoid`` where a label is there or not.
    """
    try:
        in_training, in_evaluation = (_kinds(module, example, training) for training in (True, False))
    except Exception:  # what is wrong with the module is told where it is checked
        return []
    itself = f"but the loss takes scores and applies {applied} itself: it would hardly learn; return the values before"
    if "constant" in in_training:
        return ["the model's outputs are the same whatever its inputs and its parameters are: nothing can be learnt"]
    if "blind" in in_training:
        return ["the model's outputs are the same for all examples, whatever its parameters are: it uses no input"]
    if "probabilities" in in_training:
        return [f"the model's outputs are probabilities (it ends in softmax), {itself} softmax"]
    if "logarithms" in in_training and applied == "softmax":
        return [
            "the model's outputs are logarithms of probabilities (it ends in log-softmax), but the loss takes scores "
            "and applies log-softmax itself: return the values before it"
        ]
    if "shares" in in_training:
        return [f"the model's outputs lie between 0 and 1 whatever its inputs (as after sigmoid), {itself} that"]
    if "rectified" in in_training:
        return [
            "the model's outputs lie on one side of 0 and some are 0, whatever its parameters are (it ends in ReLU): a "
            "score of 0 has no gradient; return the values before that"
        ]
    if "shares" in in_evaluation and applied == "sigmoid":
        return [
            "in evaluation the model's outputs lie between 0 and 1 whatever its inputs (as after sigmoid), but "
            "predictions are made of scores, by sigmoid: return the values before that"
        ]
    if "probabilities" in in_evaluation and applied == "softmax":
        return [
            "in evaluation the model's outputs are probabilities (it ends in softmax there), and measures take them "
            "for scores (adjusted accuracies, perplexity): return the values before softmax"
        ]
    return []


def _kinds(module: nn.Module, example: Inputs, training: bool) -> set[str]:
    """What the outputs are for all inputs and parameters that are tried."""
    generator = torch.Generator().manual_seed(0)
    kinds = {"probabilities", "logarithms", "shares", "constant", "positive", "negative", "blind"}
    first, zeros = None, False
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
            if logits.dim() < 2:
                return set()
            first = logits if first is None else first
            zeros |= scale > 0.0 and bool((logits == 0).any())
            kinds &= _kinds_of(logits, first)
            if not _differ(inputs):
                kinds -= {"blind"}
            if not kinds:
                return kinds
    return kinds | ({"rectified"} if zeros and kinds & {"positive", "negative"} else set())


def _kinds_of(logits: Tensor, first: Tensor) -> set[str]:
    """What some outputs may be."""
    may_be = {
        "probabilities": not bool((logits < 0).any()) and _add_up(logits),
        "logarithms": not bool((logits > 0).any()) and _add_up(logits.exp()),
        "shares": not bool(((logits < 0) | (logits > 1)).any()),
        "constant": torch.equal(first, logits),
        "positive": not bool((logits < 0).any()),
        "negative": not bool((logits > 0).any()),
        "blind": len(logits) > 1 and bool((logits[0] - logits[1]).abs().max() <= ROUNDING * logits.abs().max()),
    }
    return {kind for kind, may in may_be.items() if may}


def _add_up(shares: Tensor) -> bool:
    """Whether they sum to 1 over the second dimension, or the last; a single one of a row tells nothing."""
    return any(
        shares.shape[dim] > 1 and bool((shares.sum(dim) - 1).abs().max() < TOLERANCE) for dim in {1, shares.dim() - 1}
    )


def _differ(inputs: Inputs) -> bool:
    """Whether the first two examples differ."""
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    return any(len(tensor) > 1 and not torch.equal(tensor[0], tensor[1]) for tensor in tensors)


def _noise(example: Inputs, generator: torch.Generator) -> Inputs:
    """Inputs of the same shapes: random numbers for numbers, the same again for what counts or names something."""

    def like(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return torch.randn(tensor.shape, generator=generator).to(tensor.dtype) * 3

    return like(example) if isinstance(example, Tensor) else {name: like(tensor) for name, tensor in example.items()}
