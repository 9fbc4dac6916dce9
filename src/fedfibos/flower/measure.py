"""What a device can afford, measured on the device: memory and seconds of a training step, bytes of a round.

It is measured of what the task's own method would send. A slice is a smaller network: a smaller capacity saves all
three. A mask is trained in tensors of full size, whatever it holds: it saves bytes on the connection alone.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from fedfibos.analysis.cost import tried
from fedfibos.analysis.first_round import first_round
from fedfibos.analysis.process_memory import now_resident, process_memory, to_build
from fedfibos.common.user_code import describe_error
from fedfibos.flower.accelerator import train_on_device
from fedfibos.flower.speed import counted_seconds, measured_seconds, steps_of_round
from fedfibos.flower.task import FleetTask
from fedfibos.local import LocalTrainingError
from fedfibos.method import ClientScored
from fedfibos.params import Params
from fedfibos.soundness import fault, signed_by
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Dataset, download_bytes, upload_bytes
from fedfibos.wire.coding import encode_download, encode_mask, encode_score, encode_upload
from fedfibos.wire.envelope import token_of
from fedfibos.wire.payload import WireError

CAPACITIES = (1.0, 0.5, 0.25, 0.125, 0.0625)

LIMITS = ("memory-limit", "seconds-per-step", "bytes-per-round", "seconds-per-round")
"""Keys of a device's node config, in the order of :class:`Limits`."""

SPEEDS = ("macs-per-second", "examples-per-second")
"""Keys that say how fast the device is, where its seconds are to be counted and not measured; they follow the limits in
:class:`Limits`."""

IN_BYTES = ("memory-limit", "bytes-per-round")
"""Those of them that are numbers of bytes."""

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class Limits:
    """What a device has; None: no limit.

    Attributes:
        memory: Bytes that the client's process takes at most, as the operating system counts it
            (:mod:`fedfibos.analysis.process_memory`).
        seconds: Seconds for a training step.
        traffic: Bytes that a round may send to the device and back.
        round_seconds: Seconds for a round's local training.
        macs_per_second: How many multiply-accumulate operations of training it makes in a second, where its seconds are
            counted; None: they are measured, unless ``examples_per_second`` says them.
        examples_per_second: In place of that: how many examples, when it trains the whole model.
    """

    memory: float | None = None
    seconds: float | None = None
    traffic: float | None = None
    round_seconds: float | None = None
    macs_per_second: float | None = None
    examples_per_second: float | None = None

    def check(self) -> None:
        """Raise WireError for a speed that nothing asks for, two speeds, or a number that is not above 0."""
        speeds = (self.macs_per_second, self.examples_per_second)
        for name, value in zip((*LIMITS, *SPEEDS), vars(self).values(), strict=True):
            if value is not None and not 0 < value < math.inf:
                raise WireError(f"{name} of the node config must be a number above 0, got {value:g}")
        if None not in speeds:
            raise WireError(f"the node config must have {' or '.join(SPEEDS)}, got both")
        if speeds != (None, None) and self.seconds is None and self.round_seconds is None:
            raise WireError(f"{' and '.join(SPEEDS)} of the node config are for seconds-per-round, which it lacks")

    def __str__(self) -> str:
        limits = zip((*LIMITS, *SPEEDS), vars(self).values(), strict=True)
        return " and ".join(f"{name} {value:.12g}" for name, value in limits if value is not None)


def affordable_capacity(task: FleetTask, data: Dataset, limits: Limits, before: int | None = None) -> float:
    """The largest of :data:`CAPACITIES` that keeps within the limits in the method's first round.

    Slices are tried from the smallest up, so that no step is run that takes far more than the device has; masks, whose
    steps take about the same whatever they hold, from the largest down. The log of the device says what was found, and
    which limit the next larger capacity does not keep.

    Args:
        task: Method, model and local training.
        data: The client's examples.
        limits: What the device has.
        before: Bytes resident in this process before the model is built, the client's examples included; None: now.

    Raises:
        WireError: Not even the smallest capacity keeps within the limits, or the task cannot be trained here.
    """
    best, why, seen = None, "", [0]
    before = now_resident() if before is None else before
    slices = _slices(task, data)
    for capacity in reversed(CAPACITIES) if slices else CAPACITIES:
        try:
            over = _over(task, data, limits, capacity, before, seen)
        except ValueError as error:  # no slice of the model is as small as this; no training on these examples
            why = str(error)
            continue
        if over:
            why = over
        else:
            best = capacity
        if slices == bool(over):
            break
    if best is None:
        raise WireError(f"no capacity down to {CAPACITIES[-1]:g} keeps within {limits}: {why}")
    LOG.info("measured capacity %g within %s: %s", best, limits, why if best < CAPACITIES[0] else "the whole model")
    return best


def _slices(task: FleetTask, data: Dataset) -> bool:
    """Whether small capacities hold slices."""
    for capacity in reversed(CAPACITIES):
        with suppress(ValueError):  # no slice of the model is as small as this
            return first_round(task.method, task.model, _client(task, capacity, data, 1))[1].widths is not None
    return False


def _over(task: FleetTask, data: Dataset, limits: Limits, capacity: float, before: int, seen: list[int]) -> str:
    """What a capacity takes more of than there is, in words; empty where it keeps within the limits.

    ``seen``: bytes of the tensors of the capacities that were tried; this one's are added.
    """
    client = _client(task, capacity, data, 1)
    params, submodel = first_round(task.method, task.model, client)
    hint = ""
    if submodel.widths is None:
        hint = (
            "; a mask is trained in tensors of full size, whatever it holds: set capacity, or bytes-per-round, or "
            "choose a method that slices"
        )
    if limits.memory is not None and (taken := _memory(task, client, params, submodel, before, limits.memory, seen)):
        return f"{capacity:g} takes {taken} bytes of memory, {before} of them before it trains{hint}"
    if limits.traffic is not None and (sent := round_bytes(task, client, submodel, params)) > limits.traffic:
        return f"{capacity:g} takes {sent} bytes a round"
    if limits.seconds is None and limits.round_seconds is None:
        return ""
    if limits.macs_per_second is None and limits.examples_per_second is None:
        seconds = measured_seconds(task, client)
    else:
        speeds = limits.macs_per_second, limits.examples_per_second
        seconds = counted_seconds(task, submodel, params, data, *speeds)
    if limits.seconds is not None and seconds > limits.seconds:
        return f"{capacity:g} takes {seconds:.3g} s a step{hint}"
    whole = seconds * steps_of_round(task, data)
    if limits.round_seconds is not None and whole > limits.round_seconds:
        return f"{capacity:g} takes {whole:.3g} s a round{hint}"
    return ""


def _memory(
    task: FleetTask, client: Client, params: Params, submodel: Submodel, before: int, limit: float, seen: list[int]
) -> int | None:
    """Bytes that the client's process takes at most, where they are more than the limit; None where they are not.

    What parameters and their gradients take is counted first, and what a capacity took that takes less: where that is
    too much, nothing is trained.
    """
    there, layout = task.model.device, task.model.layout
    down = download_bytes(submodel, layout, corrected=task.local.scaffold)
    building = to_build(task.model, submodel, task.model.has_values)
    least = max(3 * 4 * submodel.local_layout(layout).size, *seen)
    if (taken := process_memory(before, least, down, down, building)) > limit:
        return taken
    alone = task.model.with_own_workspaces()  # which go with the trial, and are not beside the next one
    upload, tensors = tried(task.method, alone, params.to(there), submodel.to(there), client)
    seen.append(tensors)
    taken = process_memory(before, tensors, down, upload_bytes(upload, layout), building)
    return taken if taken > limit else None


def round_bytes(task: FleetTask, client: Client, submodel: Submodel, params: Params | None = None) -> int:
    """Bytes of all payloads of a client's first round, both ways, as they are encoded."""
    layout, cpu = task.model.layout, torch.device("cpu")  # payloads are made of what lies on the processor
    params = task.model.initial_params() if params is None else params.to(cpu)
    submodel = submodel.to(cpu)
    if task.local.scaffold:
        client = replace(client, correction=submodel.gather(torch.zeros_like(params.flat)))
    payloads = [encode_download(client, submodel, params, task.model)]
    upload = train_on_device(task, params, submodel, client)
    if task.federation.scores == "client":
        payloads.append(encode_mask(client.id, 0, submodel.as_mask(), layout))
        if isinstance(task.method, ClientScored) and task.shares_a_score:
            score = task.method.shared_score(task.method.init(params))
            payloads.append(encode_score(client.id, 0, score, layout))
        else:
            upload = replace(upload, statistic=None, observed="held")
    token = token_of(payloads[0])
    payloads.append(encode_upload(upload, client.id, 0, token, layout, task.federation.statistic))
    return sum(map(len, payloads))


def try_one_batch(task: FleetTask, capacity: float, data: Dataset) -> None:
    """Train one step of the client's submodel, and forget it: examples that cannot be trained on are found here.

    Raises:
        WireError: It cannot train on its examples, or what comes out is not finite.
    """
    try:
        client = _client(task, capacity, data, 1)
        params, submodel = first_round(task.method, task.model, client)
    except ValueError:
        return  # no such capacity, or no submodel of it: the server says so in its own words
    try:
        upload = train_on_device(task, params, submodel, client)
    except LocalTrainingError as error:
        raise WireError(f"a first step on its examples fails: {error}") from None
    except ValueError as error:  # of its examples and the model; here the client has no number yet
        said = str(error).removeprefix(f"client {client.id}: ")
        raise WireError(f"a first step on its examples fails: {said}") from error
    except Exception as error:
        raise WireError(f"a first step on its examples fails with {describe_error(error)}") from error
    if found := fault(upload, signed=signed_by(task.method, task.model.task)):
        raise WireError(f"a first step on its examples: {found}")


def _client(task: FleetTask, capacity: float, data: Dataset, steps: int) -> Client:
    local = replace(task.local, steps=steps, epochs=None)
    return Client(0, capacity, 0, task.seed, local, data, budget=task.federation.budget)
