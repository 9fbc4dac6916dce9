"""Passes over all parameters by the operations that torch has fastest: what a client costs beside its steps.

A round makes a dozen of them for every client. If its steps are few, they take as long as the steps. Some obvious
operations of torch are several times slower than another of equal result (docs/explanation/evidence/performance.md).
"""

from __future__ import annotations

import torch
from torch import Tensor


def indicator(held: Tensor) -> Tensor:
    """1.0 where a bool tensor is true, 0.0 elsewhere; float32."""
    return held.view(torch.uint8).to(torch.float32)


def chosen(held: Tensor, inside: Tensor, outside: Tensor) -> Tensor:
    """``inside`` where held, ``outside`` elsewhere, in the memory of ``inside``; both finite.

    Of a line between the two that is an end, exactly. Unlike a conditional it gives the processor nothing to predict.
    """
    return torch.lerp(outside, inside, indicator(held), out=inside)


def any_true(held: Tensor) -> bool:
    """Whether any element of a contiguous bool tensor is true."""
    return held.numel() > 0 and bool(held.view(torch.uint8).amax())


def all_true(held: Tensor) -> bool:
    """Whether every element of a contiguous bool tensor is true."""
    return not held.numel() or bool(held.view(torch.uint8).amin())


def all_finite(tensor: Tensor) -> bool:
    """Whether no element is infinite or NaN.

    An infinite or NaN element makes the sum so; a sum of finite ones can overflow, and only then is each looked at.
    """
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def extremes(tensor: Tensor) -> tuple[float, float]:
    """The least and the largest element, in one pass; both are NaN where one is. (0, 0) of no element."""
    if not tensor.numel():
        return 0.0, 0.0
    least, largest = torch.stack(torch.aminmax(tensor)).tolist()
    return least, largest


def zero_outside(tensor: Tensor, held: Tensor) -> bool:
    """Whether every element that is not 0 is held; ``held`` is bool and of the tensor's shape."""
    return not any_true(tensor.bool() > held)
