"""The server's average of the global parameters over the rounds, which is what it serves.

After a round the global parameters lean towards the clients that took part in it. Their average over some rounds does
not. Polyak & Juditsky 1992 average the steps of a stochastic optimiser, Caldarola et al. (ECCV 2022) the rounds of
federated learning. Clients go on from the parameters themselves: training does not depend on the average.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedfibos.params import Params
from fedfibos.types import State

AVERAGE, ROUNDS = "server.average", "server.averaged"
"""Names, in the server's state, of the average, shape ``(size,)``, and of the number of rounds in it, shape ``()``."""


def averaged(rate: float, kept: State, params: Params) -> Mapping[str, Tensor]:
    """The average after a round: x̄ ← x̄ + max(1 − rate, 1/t)·(x − x̄), t being the number of rounds in it.

    So it is the mean of all rounds until they are 1/(1 − rate), and a moving average from then on.

    Args:
        rate: ``server.average``; 0: nothing is kept.
        kept: What the round keeps, from the round before.
        params: After this round.
    """
    if not rate:
        return {}
    rounds = kept.tensors.get(ROUNDS, torch.tensor(0)) + 1
    before = kept.tensors.get(AVERAGE, params.flat)
    step = max(1.0 - rate, 1.0 / int(rounds))
    return {AVERAGE: (params.flat - before).mul_(step).add_(before), ROUNDS: rounds}


def served(state: State, params: Params) -> Params:
    """The parameters that a server evaluates and hands out for use: their average, where it keeps one.

    Args:
        state: The server's.
        params: The global parameters, which training goes on from.
    """
    return Params(params.layout, state.tensors[AVERAGE]) if AVERAGE in state.tensors else params
