"""SCAFFOLD's control variates (Karimireddy et al., ICML 2020), option II, on what each client holds.

A client's variate c_n is the mean gradient of its last local training, of which its update tells: Δ/(K·η) − c + c_n.
The server's, c, is the mean of the clients'. So the server keeps both, and sends a client the difference c − c_n on the
coordinates that it holds, which every local step adds to its gradient.

In the paper every client holds everything, and one that has not taken part yet counts as a variate of 0. Here c is, of
each coordinate, the mean over the clients that have held it and those that have not taken part yet. One that took part
without holding it is left out. Divided by all, c would be near 0 where few hold the coordinate. Their correction would
be minus their own gradient, and it would stand still. With one holder c is its own, and the correction 0.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Client, State, Upload

SUM, COUNT = "server.variates", "server.variate_holders"
"""Names, in the server's state, of Σ c_n and of the number of clients with a variate; shape ``(size,)``."""

NOTHING = torch.finfo(torch.float32).tiny
"""The variate of a coordinate whose gradient is 0: 0 itself stands for one that the client never held."""


def server_variate(state: State, params: Params, num_clients: int) -> Tensor:
    """c at the start of a round, shape ``(size,)``.

    Args:
        state: The server's.
        params: The global parameters.
        num_clients: Of the fleet.
    """
    if SUM not in state.tensors:
        return torch.zeros_like(params.flat)
    unseen = max(num_clients - len(state.variates.clients()), 0)
    return state.tensors[SUM] / (state.tensors[COUNT] + unseen).clamp_min(1.0)


def corrected(state: State, c: Tensor, client: Client, submodel: Submodel) -> Client:
    """The client with its correction c − c_n in this round, in its local layout."""
    own = state.variates.get(client.id)
    return replace(client, correction=submodel.gather(c if own is None else c - own.to(c.device)))


def with_variate(state: State, c: Tensor, client: Client, upload: Upload) -> State:
    """The state after one participant's upload: its own variate, and the sum and the number of the fleet's.

    Args:
        state: After the participants before it.
        c: At the start of the round.
        client: Who, its learning rate scheduled.
        upload: Its update.
    """
    own = state.variates.get(client.id)
    before = torch.zeros_like(c) if own is None else own.to(c.device)
    after = before - c
    upload.submodel.add_to(after, upload.delta, 1.0 / (upload.num_steps * client.local.lr))
    after = torch.where(_counted(upload, c), torch.where(after == 0, NOTHING, after), before)
    total, holders = (state.tensors.get(name, torch.zeros_like(c)) for name in (SUM, COUNT))
    new = (after != 0) & (before == 0)
    now = state.with_tensors(**{SUM: total + (after - before), COUNT: holders + new})
    return replace(now, variates=state.variates.put(client.id, after))


def _counted(upload: Upload, like: Tensor) -> Tensor:
    """Where the client counts as a holder; bool."""
    held = torch.zeros_like(like)
    if upload.counted is None:
        upload.submodel.count_in(held, 1.0)
    else:
        upload.submodel.add_to(held, upload.counted.to(torch.float32), 1.0)
    return held > 0
