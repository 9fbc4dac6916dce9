"""Local and global accuracy, defined once (docs/explanation/notation.md), and what is recorded beside them.

Accuracy is what classification is measured by; of another task its first metric stands in its place.

- *global, full*: the submodel of a capacity-1 client (the whole model) on the whole test set.
- *global, submodels*: for each capacity, the mean over its clients of the client's own submodel on the whole test
  set; and the mean over capacities. Where all clients of a capacity hold the same submodel, it is that one's.
- *local*: each client's own submodel on its own test split: its owner's test examples where the data say whose they
  are, otherwise some with the class proportions of its training split; mean over clients, and per capacity. Clients
  without a test example are left out.
- *local, adjusted*: the same, with the log of the client's class frequencies added to the logits (Menon et al., ICLR
  2021): what any model gains from being told what every client knows, how often it has which class.
- *the task's other metrics* (of classification balanced accuracy and macro F1): of the same submodels on the whole
  test set.

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
from fedfibos.tasks.class_scores import majority_share
from fedfibos.tasks.classification import is_right
from fedfibos.tasks.task import Metric, Task
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
    """Whether each example is classified correctly, bool, shape ``(2, n)``: by the model's own class, and adjusted."""
    predicted, labels, adjusted = answers(model, params, trial, test, batch_size, calibration, priors)
    return torch.stack([predicted == labels, adjusted.bool()])


def answers(
    model: Model,
    params: Params,
    trial: Trial,
    test: Dataset,
    batch_size: int,
    calibration: Dataset | None = None,
    priors: ClassPriors | None = None,
) -> Tensor:
    """What each example leaves behind (``observe`` of the model's task), a column each; float32, shape ``(k, n)``.

    Of a task of classes there is one row more: 1 where the class adjusted by ``priors`` is right (without any, where
    the model's own is).
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
        rows = [
            _rows(model.task, forward(module, model.place(test.batch(batch))).cpu(), test.labels[batch], priors, batch)
            for batch in indices.split(batch_size)
            if len(batch)
        ]
    return torch.cat(rows).T.contiguous() if rows else torch.empty(0, 0)


def _rows(task: Task, outputs: Tensor, targets: Tensor, priors: ClassPriors | None, batch: Tensor) -> Tensor:
    seen = task.rows(outputs, targets)
    if not task.classes:
        return seen
    told = outputs.float().clone()
    if priors is not None:
        told[:, : priors.table.shape[1]] += priors.table[priors.row[batch]]
    return torch.cat([seen, is_right(told, targets).float()[:, None]], 1)


def accuracy(
    model: Model, params: Params, submodel: Submodel, data: Dataset, calibration: Dataset | None = None
) -> float:
    """Share of a data set that a submodel classifies correctly, in [0, 1]; see :func:`correct`.

    Of another task than classification its first metric.

    Raises:
        ValueError: That is no number.
    """
    value = model.task.primary.of(answers(model, params, Trial(submodel), data, 500, calibration).T)
    if value is None:
        raise ValueError(f"{model.task.primary.name} of the model's outputs is not finite")
    return value


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

    Returns:
        The ``evaluation`` object of a ``rounds.jsonl`` line. Accuracies are fractions in [0, 1]; keys of capacities
        are written as ``str(capacity)``. ``metrics`` says which the metrics are, the first one first.
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
        local[key] = [tensor for tensor in own if tensor.numel()]

    def over_capacities(metric: Metric) -> dict[str, Any]:
        by_key = {key: _mean(metric.of(tensor.T) for tensor in tensors) for key, tensors in whole_test.items()}
        return {"full": metric.of(on_full.T), "submodels": {**by_key, "mean": _mean(by_key.values())}}

    task, on_full = model.task, hits[1.0, whole.id][1]
    primary, *others = task.metrics
    return {
        "metrics": task.described,
        "global": over_capacities(primary),
        **{metric.name: over_capacities(metric) for metric in others},
        **({"majority_share": majority_share(on_full[1].long())} if task.classes else {}),
        "local": {
            **_over_clients(local, lambda tensor: primary.of(tensor.T)),
            **({"adjusted": _over_clients(local, lambda tensor: hit_rate(tensor[-1]))} if task.classes else {}),
        },
        **diagnostics.result(),
    }


def _over_clients(local: Mapping[str, Sequence[Tensor]], score: Callable[[Tensor], float | None]) -> dict[str, Any]:
    """Mean over clients of a score: of all of them, and capacity by capacity."""
    scores = {key: [score(seen) for seen in own] for key, own in local.items()}
    return {
        "mean": _mean(value for values in scores.values() for value in values),
        "by_capacity": {key: _mean(values) for key, values in scores.items()},
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """Of those that are numbers."""
    return mean([value for value in values if value is not None])


def hit_rate(hits: Tensor) -> float:
    """Of hits, in [0, 1]."""
    return int(hits.sum()) / len(hits)
