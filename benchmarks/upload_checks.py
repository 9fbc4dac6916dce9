"""What a client's upload is looked at for, by the passes that the library makes and by the obvious ones."""

from __future__ import annotations

from typing import Any

import torch
from engine import in_turn, summary
from selection import SIZE

from fedfibos.backend.reductions import all_finite, any_true, extremes, indicator, zero_outside


def upload_checks(repeats: int) -> dict[str, Any]:
    """Rows by question, on an update of ResNet-18's size that is zero on half of the coordinates."""
    generator = torch.Generator().manual_seed(0)
    held = torch.rand(SIZE, generator=generator) > 0.5
    nowhere = torch.zeros(SIZE, dtype=torch.bool)
    update = torch.randn(SIZE, generator=generator) * held
    questions = {
        "is any held": (lambda: nowhere.any().item(), lambda: any_true(nowhere)),
        "is all finite": (
            lambda: torch.stack(torch.aminmax(update)).isfinite().all().item(),
            lambda: all_finite(update),
        ),
        "its least and largest value": (
            lambda: (update.min().item(), update.max().item()) if update.isfinite().all() else (0.0, 0.0),
            lambda: extremes(update),
        ),
        "is it zero off the mask": (
            lambda: not (update != 0).logical_and_(~held).any().item(),
            lambda: zero_outside(update, held),
        ),
        "1 where held": (lambda: held.to(torch.float32), lambda: indicator(held)),
    }
    rows = {}
    for question, (obvious, ours) in questions.items():
        assert torch.equal(torch.as_tensor(obvious()), torch.as_tensor(ours()))
        rows[question] = summary(in_turn({"obvious": obvious, "fedfibos": ours}, 10 * repeats), "obvious")
    return rows
