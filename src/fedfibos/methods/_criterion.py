"""A criterion of the user's own, called and checked: whatever is wrong with it is one line."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedfibos.common.user_code import naming, run_user_code

Criterion = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""What is ranked, highest first: a score of shape ``(d,)``, not NaN.

From f̄, |x̃| and where there is evidence (bool; None: everywhere), each of shape ``(d,)``. Before the first estimate
magnitude is ranked, and the function is not asked.
"""


def ranked_by(criterion: Criterion, score: Tensor, magnitude: Tensor, evidence: Tensor | None) -> Tensor:
    """What a criterion ranks by; shape ``(d,)``.

    Raises:
        ValueError: It fails, changes what it was given, or does not return one number a coordinate.
    """
    before = score._version, magnitude._version
    with naming("criterion"):
        made: object = run_user_code(criterion, score, magnitude, evidence)
        if (score._version, magnitude._version) != before:
            raise ValueError("it must change none of its arguments, got one changed in place: return new values")
        if not isinstance(made, Tensor) or made.shape != score.shape or made.is_complex():
            got = f"{made.dtype} of shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
            raise ValueError(f"it must return real numbers of shape {tuple(score.shape)}, one a coordinate, got {got}")
        if made.is_floating_point() and made.isnan().any():
            raise ValueError(f"it must not return NaN, got {int(made.isnan().sum())} of {made.numel()}")
    return made.detach() if made.is_floating_point() else made.to(torch.float32)
