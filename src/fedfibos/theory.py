"""The paper's theory as functions of tensors: its surrogate, its masking error, its assumptions, its decay.

Vectors are over the d maskable coordinates unless said otherwise; sums are float64. Equation, assumption and
proposition numbers are those of the FedFIbOS paper.
"""

from __future__ import annotations

import torch
from torch import Tensor


def jaccard(mask_a: Tensor, mask_b: Tensor) -> float:
    """|A ∩ B| / |A ∪ B| of two selections, in [0, 1] (the paper's selection agreement).

    Two random selections of share γ have γ/(2−γ) in expectation: .33 at γ = .5, .03 at .0625.

    Args:
        mask_a: bool, shape ``(d,)``.
        mask_b: bool, shape ``(d,)``.

    Returns:
        The Jaccard index; 1 for two empty selections, which are equal.
    """
    _check_mask(mask_a, mask_b.shape)
    _check_mask(mask_b, mask_a.shape)
    union = int((mask_a | mask_b).sum())
    return int((mask_a & mask_b).sum()) / union if union else 1.0


def coefficient_of_variation(scores: Tensor) -> float:
    """std / mean of scores over coordinates (CV_F of the paper), the population's standard deviation.

    Args:
        scores: Any shape, finite and not negative (Fisher scores, magnitudes).

    Returns:
        The coefficient of variation; 0 when all scores are equal, all zero included.

    Raises:
        ValueError: No score, or one that is negative or not finite.
    """
    _check_scores(scores, "scores")
    wide = scores.detach().double()
    if bool((wide == wide.flatten()[0]).all()):
        return 0.0
    return float(wide.std(correction=0) / wide.mean())


def _check_mask(mask: Tensor, shape: torch.Size) -> None:
    """Raise ValueError unless bool and of that shape."""
    if mask.dtype != torch.bool or mask.shape != shape:
        raise ValueError(f"mask must be bool of shape {tuple(shape)}, got {mask.dtype} {tuple(mask.shape)}")


def _check_scores(scores: Tensor, name: str) -> None:
    """Raise ValueError unless there are scores, all finite and none negative."""
    if scores.numel() == 0:
        raise ValueError(f"{name} must not be empty, got shape {tuple(scores.shape)}")
    bad = ~(torch.isfinite(scores) & (scores >= 0))
    if bool(bad.any()):
        raise ValueError(
            f"{name} must be finite and not negative, got {int(bad.sum())} of {scores.numel()} that are not"
        )
