"""How much the statistics of test batches tell: one checkpoint under three ways to evaluate batch normalisation.

A BatchNorm that normalises with the statistics of the test batch lets one test example influence another's class. With
test examples ordered by client, and few classes a client, a batch then tells which classes are in it, and "global"
accuracy behaves like "local". The released code of FIARSE and FedRolex evaluates so. The library never does: it
recalibrates the statistics on training data (HeteroFL's static batch normalisation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.analysis.accuracy import Trial, correct, right, share
from fedfibos.common.inputs import forward
from fedfibos.common.norms import has_batch_norm
from fedfibos.common.streams import stream
from fedfibos.local import seeded
from fedfibos.method import Method
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Dataset, State

WAYS = ("client_ordered", "shuffled", "recalibrated")


def audit(
    method: Method,
    model: Model,
    state: State,
    params: Params,
    clients: Sequence[Client],
    test: Dataset,
    test_parts: Sequence[Tensor],
    calibration: Dataset,
    generator: torch.Generator,
    batch_size: int = 20,
) -> dict[str, Any]:
    """Evaluate one checkpoint three ways, all on the same test examples: the clients' own test splits together.

    Args:
        method: Extracts the submodels.
        model: Architecture and layout; it must have batch normalisation.
        state: The method's state at the checkpoint.
        params: Global parameters there.
        clients: All clients; of each capacity the first is taken.
        test: The test set.
        test_parts: Positions in it of each client's own split, by client id.
        calibration: Training examples for the recalibrated statistics.
        generator: Stream of the shuffled order.
        batch_size: Test examples a batch (20 in FIARSE's code).

    Returns:
        A JSON-able object: ``round``, ``batch_size``, ``examples``, and ``capacities`` -> ``str(γ)`` -> ``client`` and
        the accuracies, fractions in [0, 1]: ``client_ordered`` and ``shuffled`` batches on batch statistics, and
        ``recalibrated``. Capacity 1.0, the full model, is always there.

    Raises:
        ValueError: The model has no batch normalisation, the batch size is below 2, or no client has a test example.
    """
    if not has_batch_norm(model.module):
        raise ValueError("audit compares statistics of batch normalisation, the model has no such layer")
    if batch_size < 2:
        raise ValueError(f"batch statistics need batches of at least 2 examples, got a batch size of {batch_size}")
    ordered = torch.cat(list(test_parts))
    if len(ordered) < 2:
        raise ValueError(f"audit needs at least 2 test examples, the clients have {len(ordered)}")
    shuffled = ordered[torch.randperm(len(ordered), generator=generator)]
    found: dict[str, Any] = {}
    for client in _first_of_each(clients):
        submodel = method.extract(model, state, params, client)
        hits = correct(model, params, Trial(submodel, ordered), test, batch_size, calibration)[0]
        found[str(client.capacity)] = {
            "client": client.id,
            "client_ordered": _on_batch_statistics(model, params, submodel, test, ordered, batch_size),
            "shuffled": _on_batch_statistics(model, params, submodel, test, shuffled, batch_size),
            "recalibrated": share(hits),
        }
    return {"round": clients[0].round, "batch_size": batch_size, "examples": len(ordered), "capacities": found}


def _first_of_each(clients: Sequence[Client]) -> list[Client]:
    """The first client of each capacity, largest first; for capacity 1 any client where none can afford it."""
    first = {client.capacity: client for client in reversed(clients)}
    first.setdefault(1.0, replace(clients[0], capacity=1.0))
    return [first[capacity] for capacity in sorted(first, reverse=True)]


def _on_batch_statistics(
    model: Model, params: Params, submodel: Submodel, test: Dataset, order: Tensor, batch_size: int
) -> float:
    """Accuracy with every batch normalised by its own mean and variance."""
    module = model.workspace(submodel).load(submodel.gather(params.flat))
    module.eval()
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.train()
    batches = list(order.split(batch_size))
    if len(batches[-1]) == 1:  # has no variance
        batches[-2:] = [torch.cat(batches[-2:])]
    with torch.no_grad(), seeded(stream(0, "evaluation"), model.device):
        hits = [right(forward(module, model.place(test.batch(batch))).cpu(), test.labels[batch]) for batch in batches]
    return share(torch.cat(hits))
