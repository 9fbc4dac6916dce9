"""Training on a device's accelerator: what the server sends and what goes back lie on the processor."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from fedfibos.backend.resident import peak_resident
from fedfibos.flower.task import FleetTask
from fedfibos.params import Params
from fedfibos.round import upload_of
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Upload
from fedfibos.wire.payload import WireError


def device_named(name: str, key: str) -> torch.device:
    """The torch device of that name.

    Args:
        name: As torch writes it.
        key: Where it is set, for the message.

    Raises:
        WireError: torch knows none, or cannot compute on it here.
    """
    try:
        device = torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, ImportError) as error:  # no such name; built without; none there
        reason = str(error).splitlines()[0]
        raise WireError(f"{key} must be one that torch can use here, got {name!r}: {reason}") from None
    if device.type == "meta":
        raise WireError(f"{key} must be one that torch can use here, got {name!r}: it holds no values")
    return device


def train_on_device(task: FleetTask, params: Params, submodel: Submodel, client: Client) -> Upload:
    """The client's upload, trained where the task's model computes.

    Args:
        task: Method and model.
        params: Global parameters, on the processor.
        submodel: What the client holds, on the processor; the upload is of this very one.
        client: The client, with its data.

    Raises:
        LocalTrainingError: It cannot train.
        ValueError: The method's upload is not of the submodel that it was given.
    """
    there, cpu = task.model.device, torch.device("cpu")
    params, placed = params.to(there), submodel.to(there)
    if client.correction is not None:
        client = replace(client, correction=client.correction.to(there))
    started = time.perf_counter()
    upload = upload_of(task.method, task.model, params, client, placed)
    loss = float(upload.loss)  # waits for the device
    return replace(
        upload,
        submodel=submodel,
        delta=upload.delta.to(cpu),
        loss=loss,
        seconds=time.perf_counter() - started,
        memory=peak_resident() or None,
        statistic=None if upload.statistic is None else upload.statistic.to(cpu),
        counted=None if upload.counted is None else upload.counted.to(cpu),
    )
