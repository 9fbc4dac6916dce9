"""What FedFIbOS must do at every step besides SGD: add the squared gradient, and multiply the update by the mask."""

from __future__ import annotations

from typing import Any

import torch
from engine import in_turn, summary
from workloads import LR, Workload


def passes(workload: Workload, repeats: int) -> dict[str, Any]:
    """Seconds of the passes over the parameters in one step: of SGD's update, and of observing and a masked update."""
    size = sum(p.numel() for p in workload.module().parameters())
    values, gradient, squares = torch.randn(size), torch.randn(size), torch.zeros(size)
    mask = (torch.rand(size) > 0.5).float()

    def fedfibos() -> None:
        squares.addcmul_(gradient, gradient)
        values.addcmul_(gradient, mask, value=-LR)

    sides = {"sgd": lambda: values.add_(gradient, alpha=-LR) is None, "fedfibos": fedfibos}
    return summary(in_turn(sides, 10 * repeats), "sgd")
