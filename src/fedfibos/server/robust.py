"""Merges that a few wrong clients move little: coordinate-wise median and trimmed mean (Yin et al., ICML 2018).

They are of a coordinate's holders, each of whom counts once: a weight is a client's own word. They need all uploads of
the cohort at once: four bytes for each parameter and participant, and as many for a statistic that comes along.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedfibos.server.settings import Server
from fedfibos.submodel import Submodel, exactly

FEWEST = 3
"""Holders below which there is no middle to speak of: the mean is taken."""

BLOCK = 1 << 16
"""Coordinates that are sorted at a time."""


def dense(delta: Tensor, submodel: Submodel, counted: Tensor | None, size: int) -> Tensor:
    """An update in the full model's coordinates, NaN where its client does not count as a holder.

    Args:
        delta: In the client's local layout, finite.
        submodel: What the client holds.
        counted: As of an upload.
        size: Number of parameters of the full model.
    """
    if counted is not None:
        delta = torch.where(counted, delta, torch.nan)
    elif submodel.held is not None:
        delta = torch.where(submodel.held, delta, torch.nan)
    if delta.numel() == size and submodel.widths is None:
        return delta.clone()
    spread = torch.full((size,), torch.nan, device=delta.device)
    spread[submodel.index] = delta  # type: ignore[union-attr]
    return spread


def center(server: Server, updates: list[Tensor], mean: Tensor) -> Tensor:
    """The middle of the holders' updates, coordinate by coordinate; shape ``(size,)``.

    Args:
        server: Which middle.
        updates: Those of the cohort, from :func:`dense`.
        mean: The holders' mean, which stands where a coordinate has fewer than :data:`FEWEST` of them.
    """
    merged = mean.clone()
    for start in range(0, mean.numel(), BLOCK):
        block = torch.stack([update[start : start + BLOCK] for update in updates])
        holders = block.isfinite().sum(0)
        ordered = block.sort(dim=0).values  # NaN last
        low, high = _kept(server, holders)
        many = holders >= FEWEST
        place = torch.arange(len(updates), device=block.device).unsqueeze(1)
        kept = (place >= low) & (place < high)
        middle = torch.where(kept, ordered, 0.0).sum(0) / (high - low).clamp_min(1)
        merged[start : start + BLOCK] = torch.where(many, middle, merged[start : start + BLOCK])
    return merged


def _kept(server: Server, holders: Tensor) -> tuple[Tensor, Tensor]:
    """Of the holders' updates in order, the first that counts and the one after the last; of each coordinate."""
    if server.merge == "median":
        return (holders - 1).clamp_min(0) // 2, holders // 2 + 1
    share = exactly(server.trim)
    cut = (holders * share.numerator + share.denominator - 1) // share.denominator  # rounded up
    cut = torch.minimum(cut, (holders - 1).clamp_min(0) // 2)  # one is left
    return cut, holders - cut
