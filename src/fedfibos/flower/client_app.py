"""The client's side: declare itself, train the submodel it is sent, keep its own score where the task says so."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedfibos.analysis.first_round import NeedsValuesError
from fedfibos.analysis.process_memory import now_resident
from fedfibos.backend.allocator import give_back_freed_memory
from fedfibos.backend.determinism import reproducible
from fedfibos.common.formatting import bytes_in
from fedfibos.data.finite import ADVICE, not_finite
from fedfibos.flower.accelerator import device_named, train_on_device
from fedfibos.flower.affordable import Found, found_of
from fedfibos.flower.lean import lean_task
from fedfibos.flower.measure import IN_BYTES, LIMITS, SPEEDS, Limits, try_one_batch
from fedfibos.flower.messages import (
    NOT_NOW,
    PAYLOAD,
    declaration,
    fits_in,
    limit_in,
    note_in,
    outline_in,
    payload_in,
    payload_record,
    question_in,
    refusal,
    refused_in,
    with_cost,
)
from fedfibos.flower.overdue import OverdueError, within
from fedfibos.flower.task import FleetTask, Settings
from fedfibos.local import LocalTrainingError
from fedfibos.soundness import signed_by
from fedfibos.types import Client, Dataset
from fedfibos.wire.coding import decode_download, decode_score, encode_mask, encode_upload
from fedfibos.wire.payload import WireError

if TYPE_CHECKING:
    from fedfibos.flower.scores import HeldScore

LOG = logging.getLogger("flwr")

NODE_KEYS = ("client-id", "capacity", "device", "state-dir", *LIMITS, *SPEEDS)
"""Keys of a device's node config."""

READERS = 2
"""Threads in which Flower reads the pieces of a message, before it loads the app."""

MakeTask = Callable[[Settings], FleetTask]
"""Flower's run configuration -> the task; called on the server and on every client."""

MakeData = Callable[[Context], Dataset]
"""Flower's context of a client (its ``node_config`` above all) -> its training examples."""


Available = Callable[[Context], bool | str]
"""Flower's context of a client -> whether it takes part now: True; False, or in a few words why not."""


def client_app(task: MakeTask, data: MakeData, available: Available | None = None) -> ClientApp:
    """The Flower client app of a task.

    A client's ``node_config`` holds ``client-id``, a number from 0 that it keeps for ever; ``capacity``, or what to
    measure it by (``memory-limit`` and ``bytes-per-round``, in bytes or as ``3MB``, and ``seconds-per-step``);
    ``device``, where torch trains (``cpu``, ``cuda``, ``mps``); and ``state-dir``, the folder of its own score where
    the task has ``scores = "client"``.

    Args:
        task: The task, from the run configuration.
        data: This client's training examples.
        available: The device's own veto (battery, network), asked before everything else; None: always.
    """
    app = ClientApp()

    @app.query()
    def declare(message: Message, context: Context) -> Message:
        """Who is here, and what it can afford."""
        if (reason := refused_in(message)) is not None:
            LOG.error("this device takes no part so far: %s", reason)
        return _answered(message, lambda: _declare(task, data, message, context), context, available)

    @app.query("select")
    def select(message: Message, context: Context) -> Message:
        """The mask by this client's own score."""
        return _answered(message, lambda: _select(task(context.run_config), message, context), context, available)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Train the submodel in the message."""
        return _answered(
            message,
            lambda: _train(_placed(task, context, outline_in(message)), data, message, context),
            context,
            available,
        )

    return app


def _answered(
    message: Message, answer: Callable[[], RecordDict], context: Context, available: Available | None
) -> Message:
    """Foreseen faults are answered in one line; whatever else is raised reaches the server as Flower's error.

    What takes longer than the server waits is ended, and this process with it: the device is free for the next message.
    """
    if (note := note_in(message)) is not None:
        LOG.info("%s", note)
    seconds = limit_in(message)
    if outline_in(message) is not None:  # a small device; a thread that is started before would keep what they left
        give_back_freed_memory(ended_threads=READERS)
    try:
        with reproducible(), nullcontext() if seconds is None else within(seconds):
            allowed = True if available is None else available(context)
            if allowed is not True:
                raise WireError(NOT_NOW + (f": {allowed}" if isinstance(allowed, str) else ""))
            content = answer()
    except (LocalTrainingError, WireError, OverdueError) as error:
        content = refusal(str(error))
        if isinstance(error, OverdueError):
            LOG.error("%s", error)
    return Message(content, reply_to=message)


def _declare(task: MakeTask, data: MakeData, message: Message, context: Context) -> RecordDict:
    _check_names(context)
    _device(context)
    own, capacity = client_id(context), _setting(context, "capacity", float)
    limits = Limits(*(_limit(context, name) for name in (*LIMITS, *SPEEDS)))
    if capacity is not None and limits != Limits():
        raise WireError(f"the node config must have capacity or limits to measure it by, got both: {limits}")
    limits.check()
    examples = data(context)
    try:
        found = not_finite(examples, "examples")
    except ValueError as error:
        raise WireError(f"its data: {error}") from None
    if found:
        raise WireError(f"its data: {found}; {ADVICE}")
    if capacity is None and limits == Limits():
        raise WireError(f"the node config must have capacity, or a limit to measure it by ({', '.join(LIMITS)})")
    before = now_resident()  # the examples included, the model not yet
    placed = _placed(task, context, outline_in(message))
    try:
        placed.model.task.check_targets(examples.labels)
    except ValueError as error:
        raise WireError(f"its data: {error}") from None
    fits, so_far = fits_in(message)
    own_limits = limits if capacity is None else None
    try:
        affords = _tried(placed, capacity or so_far, examples, own_limits, before, fits)
    except NeedsValuesError:
        placed = _placed(task, context)
        affords = _tried(placed, capacity or so_far, examples, own_limits, before, fits)
    return declaration(own, affords.capacity, len(examples), placed.untrained_sha256, affords.device, affords.measured)


def _tried(
    task: FleetTask, capacity: float | None, examples: Dataset, limits: Limits | None, before: int, fits: bool
) -> Found:
    """What the client can afford, measured where it is not told; training with it has been tried."""
    found = found_of(task, capacity, examples, limits, before, fits)
    try_one_batch(task, found.capacity, examples)
    return found


def _train(task: FleetTask, data: MakeData, message: Message, context: Context) -> RecordDict:
    own = client_id(context)
    download = decode_download(payload_in(message), task.model, corrected=task.local.scaffold)
    if not task.model.has_values:  # a small device: what was read is not kept beside what it says
        del message.content[PAYLOAD]
        give_back_freed_memory()
    if download.client != own:
        raise WireError(f"the download is for client {download.client}, this is client {own}")
    declared = _setting(context, "capacity", float)
    if declared is not None and declared != download.capacity:  # it was started anew since it declared itself
        raise WireError(f"the download is of capacity {download.capacity:g}, this client now has {declared:g}")
    client = _client(task, own, download.capacity, download.round, data(context))
    client = replace(client, correction=download.correction)
    upload = train_on_device(task, download.params, download.submodel, client)
    seconds, memory = upload.seconds, upload.memory
    if task.federation.scores == "client":
        upload = _held_score(task, context).observe(client, upload)
    layout, precision = task.model.layout, task.federation.statistic
    answer = payload_record(encode_upload(upload, own, client.round, download.token, layout, precision))
    return with_cost(answer, seconds, memory) if task.federation.client_records else answer


def _select(task: FleetTask, message: Message, context: Context) -> RecordDict:
    t, counted, capacity = question_in(message)
    client = _client(task, client_id(context), capacity, t)
    shared = None
    if task.shares_a_score:
        shared = decode_score(
            payload_in(message), client.id, t, task.model.layout, signed_by(task.method, task.model.task)
        )
    mask = _held_score(task, context).mask(client, counted, shared)
    return payload_record(encode_mask(client.id, t, mask, task.model.layout))


def _held_score(task: FleetTask, context: Context) -> HeldScore:
    from fedfibos.flower.scores import HeldScore  # here: most devices keep none

    folder = _setting(context, "state-dir", str)
    if folder is None:
        raise WireError("scores = 'client' needs state-dir, the folder of the client's score, in its node config")
    return HeldScore(Path(folder), client_id(context), task)


def _client(task: FleetTask, own: int, capacity: float, t: int, data: Dataset | None = None) -> Client:
    """This client in round t, of the capacity that the server has noted."""
    local = task.local.at_round(t, task.federation.rounds)
    return Client(own, capacity, t, task.seed, local, data, budget=task.federation.budget)


def _placed(task: MakeTask, context: Context, outline: bytes | None = None) -> FleetTask:
    """The task where this client trains; without the model's weights, where the server sent its outline."""
    device = _device(context)
    made = lean_task(task, context.run_config, outline)
    if made is None:
        made = task(context.run_config)
    return made if made.model.device == device else made.on(device)


def _device(context: Context) -> torch.device:
    return device_named(_setting(context, "device", str) or "cpu", "device of the node config")


def _check_names(context: Context) -> None:
    """Raise WireError for a key of the node config that is nearly one of ours; others are the app's own."""
    for key in context.node_config.keys() - NODE_KEYS:
        if near := difflib.get_close_matches(key, NODE_KEYS, n=1, cutoff=0.8):
            raise WireError(f"the node config has {key!r}; did you mean {near[0]!r}?")


def client_id(context: Context) -> int:
    """The client's stable id.

    Raises:
        WireError: Its node config has none.
    """
    value = context.node_config.get("client-id")
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WireError(f"the node config must have client-id, a number from 0, got {value!r}")
    return value


def _limit(context: Context, key: str) -> float | None:
    """A limit of the node config, where it has one; bytes may be text with a unit."""
    value = context.node_config.get(key)
    if not isinstance(value, str) or key not in IN_BYTES:
        limit: float | None = _setting(context, key, float)
        return limit
    try:
        return bytes_in(value)
    except ValueError as error:
        raise WireError(f"{key} of the node config: {error}") from None


def _setting(context: Context, key: str, wanted: type[float] | type[str]) -> Any:
    """A value of the node config, or None where it has none."""
    value = context.node_config.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and wanted is float:
        value = float(value)
    if value is not None and not isinstance(value, wanted):
        kind = "a number" if wanted is float else "text"
        raise WireError(f"{key} of the node config must be {kind}, got {value!r}")
    return value
