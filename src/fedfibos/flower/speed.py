"""How long a device takes for a training step: measured, or counted where its node config says how fast it is."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from fedfibos.analysis.cost import forward_macs
from fedfibos.analysis.first_round import NeedsValuesError, first_round
from fedfibos.analysis.fitting import PASSES
from fedfibos.flower.accelerator import train_on_device
from fedfibos.flower.task import FleetTask
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Dataset

MOMENTS, PAUSE = 3, 0.3
"""How often a device's speed is measured at one contact, and seconds between: it may be busy at one moment."""


def steps_of_round(task: FleetTask, data: Dataset) -> int:
    """Local steps of a round on that many examples."""
    if task.local.steps is not None:
        return task.local.steps
    return (task.local.epochs or 1) * -(-len(data) // task.local.batch_size)


def counted_seconds(
    task: FleetTask,
    submodel: Submodel,
    params: Params,
    data: Dataset,
    macs_per_second: float | None,
    examples_per_second: float | None,
) -> float:
    """Seconds of a step of a device of that speed.

    Args:
        task: Batches and model.
        submodel: What is trained.
        params: The global parameters, or of a model without values those of the slice.
        data: The client's examples.
        macs_per_second: Multiply-accumulate operations of training a second; None: see below.
        examples_per_second: Examples a second, when the whole model is trained.
    """
    batch = min(task.local.batch_size, len(data))
    macs, whole = _macs(task.model, submodel, params, data)
    if macs_per_second is not None:
        return PASSES * batch * macs / macs_per_second
    assert examples_per_second is not None
    return batch / examples_per_second * macs / whole


def _macs(model: Model, submodel: Submodel, params: Params, data: Dataset) -> tuple[int, int]:
    """Operations of an example forward, of the submodel and of the whole model."""
    if submodel.widths is None:  # a mask is trained in the shape of the whole model, which has values here
        whole = forward_macs(model, params, submodel, data)
        return whole, whole
    if not (model.has_values or model.macs_known):
        raise NeedsValuesError("the server does not know the operations of slices")
    sizes = model.axes.sizes
    return int(model.macs.at({**sizes, **dict(submodel.widths)})), int(model.macs.of_all(sizes))


def measured_speed(task: FleetTask, client: Client) -> float:
    """Multiply-accumulate operations of training that this device makes in a second: the median of a few moments.

    Args:
        task: Method, model and local training.
        client: Of the capacity whose submodel is trained, with its data.
    """
    assert client.data is not None
    params, submodel = first_round(task.method, task.model, client)
    macs, _ = _macs(task.model, submodel, params, client.data)
    taken = []
    for moment in range(MOMENTS):
        if moment:
            time.sleep(PAUSE)
        taken.append(measured_seconds(task, client))
    batch = min(task.local.batch_size, len(client.data))
    return PASSES * batch * macs / max(statistics.median(taken), 1e-9)


def measured_seconds(task: FleetTask, client: Client, steps: int = 3) -> float:
    """Seconds of one training step on this device: the mean over a few, after one to warm up."""
    several = replace(client, local=replace(client.local, steps=steps, epochs=None))
    params, submodel = first_round(task.method, task.model, client)
    train_on_device(task, params, submodel, replace(client, local=replace(client.local, steps=1, epochs=None)))
    started = time.perf_counter()
    train_on_device(task, params, submodel, several)
    return (time.perf_counter() - started) / steps
