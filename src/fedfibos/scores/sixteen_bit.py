"""Scores in two bytes each: float32's order, ten bits of fraction, exponents from 2⁻⁶⁰ to 2³, no sign.

Squared gradients lie far below what half precision can hold, and bfloat16 spends bits on a sign and on exponents that
scores do not have; a moving average is rounded anew at every step, which takes fraction bits. A code is the upper part
of the float's bits, moved down. Rounding changes a value by at most 2⁻¹¹ of itself, equal codes tie, and no two scores
change order.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DROPPED = 13
_LOWEST = (127 - 60) << 23
"""Bits of 2⁻⁶⁰, which would be code 0: that and everything below is kept as 0."""

_LARGEST = (1 << 16) - 1


def to_halves(scores: Tensor) -> Tensor:
    """Codes of scores; uint16, same shape.

    Args:
        scores: float32, at least 0. From 16 on they are kept as the largest code, up to 2⁻⁶⁰ as 0.

    Raises:
        ValueError: A score that is negative or NaN.
    """
    if len(scores) and not bool((low := scores.min()) >= 0):
        raise ValueError(f"two bytes hold scores of at least 0, got {float(low):g}")
    bits = scores.contiguous().view(torch.int32).clamp(min=0)  # -0.0 is 0
    codes = (bits - _LOWEST + (1 << (_DROPPED - 1))) >> _DROPPED
    return codes.clamp_(0, _LARGEST).to(torch.uint16)


def from_halves(codes: Tensor) -> Tensor:
    """Scores of codes; float32, same shape."""
    bits = codes.to(torch.int32)
    zero = bits == 0
    bits.bitwise_left_shift_(_DROPPED).add_(_LOWEST).masked_fill_(zero, 0)
    return bits.view(torch.float32)
