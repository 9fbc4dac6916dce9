"""What the protocol of an evaluation makes of an accuracy: one checkpoint, evaluated in all the ways that papers do.

Four choices are often left unsaid, and each can move a number by more than a method does:

- *Classes*. All of them, or only those that the client has examples of: the other logits are ruled out.
- *Statistics* of batch normalisation. Those of training data (HeteroFL's static batch normalisation), or those of the
  test batch, whose examples come client after client or shuffled. A batch's own statistics let one test example
  influence another's class; with few classes a client, batches in the clients' order tell which classes are in them.
  The released code of FIARSE and FedRolex evaluates so. The library never does elsewhere.
- *Training*. The submodel as it is served, or after one round of the client's local training at the run's first
  learning rate.
- *Submodel*. The full model, or that of each capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.analysis.accuracy import hit_rate, recalibrate
from fedfibos.analysis.class_priors import ClassPriors
from fedfibos.common.inputs import forward
from fedfibos.common.norms import has_batch_norm, keeps_statistics
from fedfibos.common.streams import stream
from fedfibos.local import seeded
from fedfibos.method import Method
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.round import outcome_of, submodel_for
from fedfibos.submodel import Submodel
from fedfibos.tasks.classification import is_right
from fedfibos.tasks.task import Task
from fedfibos.types import Client, Dataset, State

STATISTICS = ("recalibrated", "client_ordered", "shuffled")
"""Where batch normalisation's mean and variance come from."""

TRAINING = ("served", "trained")
CLASSES = ("all", "own")


@dataclass(frozen=True)
class TestData:
    """What the clients are evaluated on.

    Attributes:
        examples: The test set.
        parts: Positions in it of each client's own examples, by client id.
        priors: Which classes the client of each test example has.
        calibration: Training examples for recalibrated statistics.
    """

    examples: Dataset
    parts: Sequence[Tensor]
    priors: ClassPriors
    calibration: Dataset


def audit(
    method: Method,
    model: Model,
    state: State,
    params: Params,
    clients: Sequence[Client],
    train: Callable[[int], Dataset],
    test: TestData,
    generator: torch.Generator,
    batch_size: int = 20,
    num_clients: int = 20,
) -> dict[str, Any]:
    """Evaluate one checkpoint in every way, always on the same test examples: the clients' own.

    Args:
        method: Extracts and trains the submodels.
        model: Architecture and layout.
        state: The method's state at the checkpoint.
        params: Global parameters there.
        clients: All clients, in the round after the checkpoint's, with the settings by which they train here.
        train: A client's training examples.
        test: Test examples and whose they are.
        generator: Stream of the shuffled order.
        batch_size: Test examples a batch (20 in FIARSE's code).
        num_clients: How many clients of a capacity are evaluated, evenly spread over those that have test examples.

    Returns:
        A JSON-able object: ``round``, ``batch_size``, ``statistics`` (the ways that this model has: a model without
        batch normalisation has one, ``"none"``) and ``capacities`` -> ``str(γ)`` -> ``clients`` (ids), ``examples``,
        and ``served`` and ``trained`` -> statistics -> ``all`` and ``own`` -> accuracy, a fraction in [0, 1] of these
        clients' test examples together. Capacity 1.0, the full model, is always there: of clients of capacity 1 where
        the fleet has some.

    Raises:
        ValueError: The batch size is below 2, the clients have fewer than two test examples, or the task has no
            classes.
    """
    check_task(model.task)
    if batch_size < 2:
        raise ValueError(f"batch statistics need batches of at least 2 examples, got a batch size of {batch_size}")
    ordered = torch.cat(list(test.parts))
    if len(ordered) < 2:
        raise ValueError(f"audit needs at least 2 test examples, the clients have {len(ordered)}")
    shuffled = ordered[torch.randperm(len(ordered), generator=generator)]
    ways = STATISTICS if has_batch_norm(model.module) else ("none",)
    orders = {way: _batches(shuffled if way == "shuffled" else ordered, batch_size) for way in ways}
    found: dict[str, Any] = {}
    for capacity, members in _by_capacity(clients, test.parts, num_clients).items():
        hits: dict[tuple[str, str], list[Tensor]] = {(when, way): [] for when in TRAINING for way in ways}
        evaluated = []
        for client in members:
            submodel = submodel_for(method, model, state, params, client)
            tuned = _after_training(method, model, params, submodel, replace(client, data=train(client.id)))
            if tuned is None:
                continue
            evaluated.append(client.id)
            mine = torch.zeros(len(test.examples), dtype=torch.bool)
            mine[test.parts[client.id]] = True
            for when, values in zip(TRAINING, (params, tuned), strict=True):
                for way, batches in orders.items():
                    hits[when, way].append(_hits(model, values, submodel, test, batches, mine, way))
        if evaluated:
            found[str(capacity)] = {
                "clients": evaluated,
                "examples": sum(len(test.parts[n]) for n in evaluated),
                **{when: {way: _shares(hits[when, way]) for way in ways} for when in TRAINING},
            }
    return {"round": clients[0].round, "batch_size": batch_size, "statistics": list(ways), "capacities": found}


def check_task(task: Task) -> None:
    """Raise ValueError for a task without classes."""
    if not task.classes:
        raise ValueError(f"audit compares ways to measure accuracy, class by class: task {task.name!r} has none")


def _by_capacity(clients: Sequence[Client], parts: Sequence[Tensor], most: int) -> Mapping[float, Sequence[Client]]:
    """Clients with test examples by capacity, largest first, evenly spread; of capacity 1 any if none affords it."""
    groups: dict[float, list[Client]] = {}
    for client in clients:
        if len(parts[client.id]):
            groups.setdefault(client.capacity, []).append(client)
    if 1.0 not in groups:
        groups[1.0] = [replace(client, capacity=1.0) for client in clients if len(parts[client.id])]
    spread = {}
    for capacity in sorted(groups, reverse=True):
        members, count = groups[capacity], min(most, len(groups[capacity]))
        spread[capacity] = [members[i * len(members) // count] for i in range(count)]
    return spread


def _after_training(method: Method, model: Model, params: Params, submodel: Submodel, client: Client) -> Params | None:
    """The parameters after one round of a client's local training; None where it cannot train."""
    upload = outcome_of(method, model, params, client, submodel)
    if isinstance(upload, str):
        return None
    flat = params.flat.clone()
    submodel.add_to(flat, upload.delta, -1.0)
    return replace(params, flat=flat)


def _batches(order: Tensor, size: int) -> list[Tensor]:
    """The order in batches; a last one of one example, which has no variance, joins the one before."""
    batches = list(order.split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def _hits(
    model: Model,
    params: Params,
    submodel: Submodel,
    test: TestData,
    batches: Sequence[Tensor],
    mine: Tensor,
    statistics: str,
) -> Tensor:
    """Whether a client's own test examples are classified correctly: bool, ``(2, n)``: of all classes, of its own.

    Batches are those of everybody's examples; those without any of the client's are passed over.
    """
    module = model.workspace(submodel).load(submodel.gather(params.flat))
    module.eval()
    found = [torch.empty(2, 0, dtype=torch.bool)]
    with torch.no_grad(), seeded(stream(0, "evaluation"), model.device):
        if statistics in ("none", "recalibrated") and keeps_statistics(module):
            recalibrate(module, test.calibration, model.place)
        for norm in module.modules():
            if statistics not in ("none", "recalibrated") and isinstance(norm, nn.modules.batchnorm._BatchNorm):
                norm.train()
        for batch in batches:
            own = mine[batch]
            if not own.any():
                continue
            logits = forward(module, model.place(test.examples.batch(batch))).cpu()[own].float()
            labels, table = test.examples.labels[batch][own], test.priors.table[test.priors.row[batch][own]]
            known = logits.clone()
            known[:, : table.shape[1]].masked_fill_(table.isneginf(), float("-inf"))
            found.append(torch.stack([is_right(logits, labels), is_right(known, labels)]))
    return torch.cat(found, 1)


def _shares(hits: Sequence[Tensor]) -> dict[str, float]:
    together = torch.cat(list(hits), 1)
    return {classes: hit_rate(row) for classes, row in zip(CLASSES, together, strict=True)}
