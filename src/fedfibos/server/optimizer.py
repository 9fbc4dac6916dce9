"""The server's optimiser: the merged update as a gradient (Reddi et al., ICLR 2021, Algorithm 2; Hsu et al. 2019).

The update Δ is start minus end, as everywhere here: the gradient's sign. There is no correction of bias, as in the
paper; the mean square begins at τ². A coordinate that nobody held has no gradient in the round, which is not a gradient
of 0: its moments stay as they are, and it does not move, whatever momentum it has.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedfibos.server.settings import Server

FIRST, SECOND = "server.momentum", "server.square"
"""Names, in the server's state, of the moments; each of shape ``(size,)``."""

Moments = Mapping[str, Tensor]


def stepped(server: Server, moments: Moments, update: Tensor, held: Tensor) -> tuple[Tensor, Moments]:
    """What an optimiser makes of a merged update. Changes none of its arguments.

    Args:
        server: Which optimiser, and its settings.
        moments: After the round before; empty before the first.
        update: Δ, shape ``(size,)``.
        held: Where somebody held the coordinate; bool, same shape.

    Returns:
        What the server's learning rate multiplies, 0 where nobody held; and the moments after the round.
    """
    if server.optimizer == "sgd":
        return update, {}
    before = moments.get(FIRST, torch.zeros_like(update))
    if server.optimizer == "momentum":
        first = torch.where(held, before * server.momentum + update, before)
        return torch.where(held, first, 0.0), {FIRST: first}
    rate, _ = server.betas
    first = torch.where(held, before * rate + update * (1.0 - rate), before)
    size = moments.get(SECOND, torch.full_like(update, server.tau**2))
    second = torch.where(held, _square(server, size, update * update), size)
    step = torch.where(held, first / (second.sqrt() + server.tau), 0.0)
    return step, {FIRST: first, SECOND: second}


def _square(server: Server, before: Tensor, square: Tensor) -> Tensor:
    """The running size v after a round, from Δ²."""
    if server.optimizer == "adagrad":
        return before + square
    rate = server.betas[1]
    if server.optimizer == "adam":
        return before * rate + square * (1.0 - rate)
    return before - square * torch.sign(before - square) * (1.0 - rate)  # yogi
