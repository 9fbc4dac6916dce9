"""Scores in two bytes each: float32's order and nearly its range, nine bits of fraction.

Squared gradients lie far below what half precision can hold, and bfloat16 has seven bits of fraction and a sign that
scores do not need. A code is the upper part of the float's bits, moved down: exponents from 2⁻¹¹² to 2¹⁵, no sign.
Rounding changes a value by at most 2⁻¹⁰ of itself, equal codes tie, and no two codes change order.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DROPPED = 14
_LOWEST = 15 << 23
"""Bits of 2⁻¹¹², which would be code 0: that and everything below is kept as 0."""

_LARGEST = (1 << 16) - 1


def to_halves(scores: Tensor) -> Tensor:
    """Codes of scores; uint16, same shape.

    Args:
        scores: float32, at least 0. Above 2¹⁶ they are kept as the largest code, to 2⁻¹¹² as 0.

    Raises:
        ValueError: A score that is negative or NaN.
    """
    if len(scores) and not bool((low := scores.min()) >= 0):
        raise ValueError(f"two bytes hold scores of at least 0, got {float(low):g}")
    bits = scores.contiguous().view(torch.int32)
    codes = (bits - _LOWEST + (1 << (_DROPPED - 1))) >> _DROPPED
    return codes.clamp_(0, _LARGEST).to(torch.uint16)


def from_halves(codes: Tensor) -> Tensor:
    """Scores of codes; float32, same shape."""
    bits = codes.to(torch.int32)
    zero = bits == 0
    bits.bitwise_left_shift_(_DROPPED).add_(_LOWEST).masked_fill_(zero, 0)
    return bits.view(torch.float32)
