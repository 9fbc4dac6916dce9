"""Local and global accuracy, defined once (docs/explanation/notation.md), and what is recorded beside them.

- *global, full*: the submodel of a capacity-1 client (the whole model) on the whole test set.
- *global, submodels*: for each capacity, the mean over its clients of the client's own submodel on the whole test
  set; and the mean over capacities. Where all clients of a capacity hold the same submodel, it is that one's.
- *local*: each client's own submodel on its own test split: its owner's test examples where the data say whose they
  are, otherwise some with the class proportions of its training split; mean over clients, and per capacity. Clients
  without a test example are left out.
- *local, adjusted*: the same, with the log of the client's class frequencies added to the logits (Menon et al., ICLR
  2021): what any model gains from being told what every client knows, how often it has which class.
- *by class*: balanced accuracy and macro F1 of the same submodels on the whole test set.

No accuracy is ever taken on the statistics of a test batch: batch normalisation is recalibrated on training data,
per submodel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.analysis.class_priors import ClassPriors
from fedfibos.analysis.class_scores import balanced_accuracy, macro_f1, majority_share
from fedfibos.analysis.selections import Diagnostics
from fedfibos.common.inputs import Inputs, forward
from fedfibos.common.norms import keeps_statistics
from fedfibos.common.statistics import mean
from fedfibos.common.streams import stream
from fedfibos.local import seeded
from fedfibos.method import Method
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Dataset, State


@dataclass(frozen=True)
class Trial:
    """One piece of evaluation work: a submodel on some examples of the test set (None: all of them)."""

    submodel: Submodel
    indices: Tensor | None = None


RunTrials = Callable[[Params, Iterable[Trial]], Iterator[Tensor]]
"""Runs the pieces, here or elsewhere, and yields for each what :func:`answers` says of its examples."""


def correct(
    model: Model,
    params: Params,
    trial: Trial,
    test: Dataset,
    batch_size: int,
    calibration: Dataset | None = None,
    priors: ClassPriors | None = None,
) -> Tensor:
    """Whether each example is classified correctly, bool, shape ``(2, n)``: the first rows of :func:`answers`."""
    return answers(model, params, trial, test, batch_size, calibration, priors)[:2].bool()


def answers(
    model: Model,
    params: Params,
    trial: Trial,
    test: Dataset,
    batch_size: int,
    calibration: Dataset | None = None,
    priors: ClassPriors | None = None,
) -> Tensor:
    """How a submodel classifies each example; int32, shape ``(3, n)``.

    The first row is 1 where the model's own class is right, the second where that adjusted by ``priors`` is (without
    any, the same); the third is the model's own class, −1 where its logits are not finite.
    A model that draws random numbers in evaluation draws the same ones for every trial, whoever evaluates it.

    Args:
        model: Architecture and layout.
        params: The global parameters.
        trial: Submodel and examples.
        test: The test set.
        batch_size: Examples a forward pass; has no influence on the result of a model that draws no random numbers.
        calibration: Training examples for the statistics of batch normalisation.
        priors: Class frequencies to adjust the logits by.

    Raises:
        ValueError: The model has batch normalisation and no calibration set.
    """
    space = model.workspace(trial.submodel)
    module = space.load(trial.submodel.gather(params.flat))
    module.eval()
    indices = torch.arange(len(test)) if trial.indices is None else trial.indices
    # Not torch.inference_mode: a table that the module makes here and keeps could not be used in training.
    with torch.no_grad(), seeded(stream(0, "evaluation"), model.device):
        if keeps_statistics(module):
            if calibration is None:
                raise ValueError("a model with batch normalisation needs training data to recalibrate on, got none")
            recalibrate(module, calibration, model.place)
        hits = [
            _hits(forward(module, model.place(test.batch(batch))).cpu(), test.labels[batch], priors, batch)
            for batch in indices.split(batch_size)
            if len(batch)
        ]
    return torch.cat(hits, 1) if hits else torch.empty(3, 0, dtype=torch.int32)


def _hits(logits: Tensor, labels: Tensor, priors: ClassPriors | None, batch: Tensor) -> Tensor:
    plain = adjusted = right(logits, labels)
    if priors is not None:
        told = logits.float().clone()
        told[:, : priors.table.shape[1]] += priors.table[priors.row[batch]]
        adjusted = right(told, labels)
    return torch.stack([plain, adjusted, torch.where(_sound(logits), logits.argmax(1), -1)]).int()


def right(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether each example's largest logit is its label's; bool, shape ``(n,)``."""
    return (logits.argmax(1) == labels) & _sound(logits)


def _sound(logits: Tensor) -> Tensor:
    """Where the largest logit is a number: without one argmax would make the first class. -∞ rules classes out."""
    return logits.amax(1).isfinite()


def accuracy(
    model: Model, params: Params, submodel: Submodel, data: Dataset, calibration: Dataset | None = None
) -> float:
    """Share of a data set that a submodel classifies correctly, in [0, 1]; see :func:`correct`."""
    return share(correct(model, params, Trial(submodel), data, 500, calibration)[0])


CALIBRATION_BATCH = 500
"""Examples a batch, at most, on which statistics are recomputed: they depend on it, so it is no setting."""


def recalibrate(module: nn.Module, data: Dataset, place: Callable[[Inputs], Inputs]) -> None:
    """Recompute the kept statistics of normalisation layers on training data (HeteroFL's static batch normalisation).

    Means over batches of nearly equal size of each batch's mean and variance, with the layer's input as it is in this
    submodel. Random numbers that the model draws are the same each time, and torch's global streams stay as they are.

    Raises:
        ValueError: Fewer than two examples, or batch normalisation that keeps no statistics.
    """
    if len(data) < 2:
        raise ValueError(f"statistics of normalisation need at least 2 training examples, got {len(data)}")
    norms = [norm for norm in trained_norms(module) if norm.track_running_stats]
    module.eval()
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
    device = next(module.parameters()).device
    try:
        with torch.no_grad(), seeded(stream(0, "calibration"), device):
            batches = torch.arange(len(data)).tensor_split(math.ceil(len(data) / CALIBRATION_BATCH))
            for count, batch in enumerate(batches, 1):
                for norm in norms:
                    norm.momentum = 1 / count  # the mean over the batches so far
                forward(module, place(data.batch(batch)))
    finally:  # a forward pass in training may read them: the next client's must not differ for an evaluation
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()


def trained_norms(module: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """The layers that normalise by statistics which training moves; the module is put back in its mode.

    Raises:
        ValueError: Batch normalisation that keeps no statistics.
    """
    was_training = module.training
    module.train()  # a model may keep layers in evaluation mode: it trained with the statistics that they have
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._NormBase) and m.training]
    module.train(was_training)
    if any(isinstance(norm, nn.modules.batchnorm._BatchNorm) and not norm.track_running_stats for norm in norms):
        raise ValueError(
            "batch normalisation without running statistics would be evaluated on the test batch's own; "
            "build it with track_running_stats=True"
        )
    return norms


def evaluate(
    method: Method,
    model: Model,
    state: State,
    params: Params,
    clients: Sequence[Client],
    test_parts: Sequence[Tensor],
    run: RunTrials,
    submodel_clients: int | None = None,
    labels: Tensor | None = None,
) -> dict[str, Any]:
    """Evaluate a global model for the fleet it serves.

    Args:
        method: Extracts the submodels.
        model: Architecture and layout.
        state: The method's state.
        params: Global parameters.
        clients: All clients, with their present capacities.
        test_parts: Positions in the test set of each client's own split, by client id.
        run: Runs the forward passes.
        submodel_clients: For methods whose submodels are personal: how many clients of each capacity enter the
            global accuracy of submodels (the lowest ids); None: all.
        labels: Class of every test example, for what is measured class by class; None: it is not.

    Returns:
        The ``evaluation`` object of a ``rounds.jsonl`` line. Accuracies are fractions in [0, 1]; keys of capacities
        are written as ``str(capacity)``.
    """
    by_capacity: dict[float, list[Client]] = {}
    for client in sorted(clients, key=lambda c: (-c.capacity, c.id)):
        by_capacity.setdefault(client.capacity, []).append(client)
    if 1.0 in by_capacity:
        whole = by_capacity[1.0][0]
    else:
        whole = Client(clients[0].id, 1.0, clients[0].round, clients[0].seed, clients[0].local)
    plan = [(whole, True)] if 1.0 not in by_capacity else []
    for members in by_capacity.values():
        tried = members if method.personal else members[:1]
        limit = len(tried) if submodel_clients is None else max(1, submodel_clients)
        plan += [(client, position < limit) for position, client in enumerate(tried)]
    diagnostics = Diagnostics(method, state, params)

    def trials() -> Iterator[Trial]:  # one submodel at a time: all of them at once would not fit a large model
        for position, (client, everywhere) in enumerate(plan):
            submodel = method.extract(model, state, params, client)
            diagnostics.add(client, submodel, of_the_fleet=position > 0 or 1.0 in by_capacity)
            yield Trial(submodel, None if everywhere else test_parts[client.id])

    hits = {
        (client.capacity, client.id): (everywhere, tensor)
        for (client, everywhere), tensor in zip(plan, run(params, trials()), strict=True)
    }
    whole_test: dict[str, list[Tensor]] = {}
    local: dict[str, list[Tensor]] = {}
    for capacity, members in by_capacity.items():
        key, tried = str(capacity), members if method.personal else members[:1]
        on_test = [hits[capacity, client.id] for client in tried]
        whole_test[key] = [tensor for everywhere, tensor in on_test if everywhere]
        own = []
        for client, (everywhere, tensor) in zip(members, on_test * (len(members) // len(tried)), strict=True):
            own.append(tensor[:, test_parts[client.id]] if everywhere else tensor)
        local[key] = [tensor for tensor in own if tensor.shape[1]]

    def over_capacities(score: Callable[[Tensor], float]) -> dict[str, Any]:
        by_key = {key: mean([score(tensor) for tensor in tensors]) for key, tensors in whole_test.items()}
        average = mean([value for value in by_key.values() if value is not None])
        return {"full": score(hits[1.0, whole.id][1]), "submodels": {**by_key, "mean": average}}

    by_class: dict[str, Any] = {}
    if labels is not None:
        by_class = {
            "balanced_accuracy": over_capacities(lambda tensor: balanced_accuracy(tensor[2], labels)),
            "macro_f1": over_capacities(lambda tensor: macro_f1(tensor[2], labels)),
            "majority_share": majority_share(labels),
        }
    return {
        "global": over_capacities(lambda tensor: share(tensor[0])),
        **by_class,
        "local": {**_over_clients(local, 0), "adjusted": _over_clients(local, 1)},
        **diagnostics.result(),
    }


def _over_clients(local: Mapping[str, Sequence[Tensor]], row: int) -> dict[str, Any]:
    """Mean over clients of a row of their hits: of all of them, and capacity by capacity."""
    accuracies = {key: [share(hits[row]) for hits in own] for key, own in local.items()}
    return {
        "mean": mean([accuracy for values in accuracies.values() for accuracy in values]),
        "by_capacity": {key: mean(values) for key, values in accuracies.items()},
    }


def share(hits: Tensor) -> float:
    """Of hits, in [0, 1]."""
    return int(hits.sum()) / len(hits)
