"""What draws a client's local steps back towards the others': FedProx's term, SCAFFOLD's correction.

Both are gradients beside the loss's own, and what is observed of the loss (Fisher estimates) does not see them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedfibos.params import Layout
from fedfibos.types import Client

Pull = Callable[[list[Tensor]], None]
"""Adds to a step's gradients, in place."""


def pull_of(client: Client, layout: Layout, start: Tensor, trained: Tensor) -> Pull | None:
    """What a client's steps are drawn by; None where by nothing.

    Args:
        client: Its settings, and its correction.
        layout: Of the vectors, local to the client.
        start: Where it started; off what it holds equal to ``trained``.
        trained: What its steps change in place.
    """
    mu, correction = client.local.proximal, client.correction
    if correction is not None:
        added = layout.views(correction)
        return lambda gradients: torch._foreach_add_(gradients, added)
    if not mu:
        return None
    starts, values = layout.views(start), layout.views(trained)

    def proximal(gradients: list[Tensor]) -> None:
        """∇ of μ/2·‖x − x₀‖² (Li et al., MLSys 2020)."""
        torch._foreach_add_(gradients, torch._foreach_sub(values, starts), alpha=mu)

    return proximal
