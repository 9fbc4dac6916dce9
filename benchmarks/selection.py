"""Exact selection against ``torch.topk``, one capacity and all of a fleet, on 11.2 million scores."""

from __future__ import annotations

from typing import Any

import torch
from engine import in_turn, summary
from workloads import CAPACITIES

from fedfibos.backend.topk import top_k, top_k_many

SIZE = 11_173_962
"""Scalars of ResNet-18 with ten classes."""


def selection(repeats: int) -> dict[str, Any]:
    """Rows for 1/2 and 1/16 of the scores, and for all capacities below 1 together."""
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
    ks = [int(SIZE * capacity) for capacity in CAPACITIES[1:]]
    sides = {
        "one by one": lambda: [top_k(scores, k) for k in ks] and None,
        "together": lambda: top_k_many(scores, ks) and None,
    }
    rows["4 capacities"] = summary(in_turn(sides, repeats), "one by one")
    return rows
