"""Exact selection against ``torch.topk`` on 11.2 million scores."""

from __future__ import annotations

from typing import Any

import torch
from engine import in_turn, summary

from fedfibos.backend.topk import top_k

SIZE = 11_173_962
"""Scalars of ResNet-18 with ten classes."""


def selection(repeats: int) -> dict[str, Any]:
    """Rows for 1/2 and 1/16 of the scores."""
    scores = torch.randn(SIZE, generator=torch.Generator().manual_seed(0)).square()
    scores[::50] = 0.0  # never touched: ties
    rows = {}
    for capacity in (0.5, 0.0625):
        k = int(SIZE * capacity)
        sides = {
            "torch.topk": lambda k=k: torch.topk(scores, k) and None,
            "torch.topk unsorted": lambda k=k: torch.topk(scores, k, sorted=False) and None,
            "top_k": lambda k=k: top_k(scores, k) is None,
        }
        rows[f"{capacity:g}"] = summary(in_turn(sides, repeats), "torch.topk")
    return rows
