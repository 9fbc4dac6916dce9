"""The app of a soak with processes: the template's, on devices to which something happens in every third training.

What happens to a device is drawn from its number and its trainings so far, and written to its journal first.
"""

import json
import os
import random
import signal
import time
from pathlib import Path

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from fedfibos import Dataset, FleetTask, Partition, Settings, TensorData, build, load, partition, stream, task_of
from fedfibos.flower import client_app, server_app
from fedfibos.flower.messages import payload_in, payload_record
from fedfibos.wire.envelope import HEADER

FLEET, OFTEN = 6, 0.35
KINDS = ("dies", "hangs", "raises", "slow", "wrong shape", "echo", "veto")
NOW = {"kind": "sound"}


def model() -> nn.Module:
    return build("cnn", num_classes=10, input_shape=(1, 8, 8), seed=0)


def data(context: Context) -> Dataset:
    if NOW["kind"] == "hangs":
        time.sleep(10_000)
    if NOW["kind"] == "raises":
        raise RuntimeError("out of memory")
    if NOW["kind"] == "slow":
        time.sleep(15)
    digits = load("digits").train
    parts = partition(digits.labels, Partition("dirichlet", alpha=0.5), FLEET, stream(0, "partition"))
    own = digits.subset(parts[int(context.node_config["client-id"])])
    if NOW["kind"] == "wrong shape":
        return TensorData(torch.zeros(len(own), 3, 8, 8), own.labels)
    return own


def available(context: Context) -> bool | str:
    return "battery at 9 %" if NOW["kind"] == "veto" else True


def test(config: Settings) -> Dataset:
    return load("digits").test


def task(config: Settings) -> FleetTask:
    return task_of(model(), config, example=torch.zeros(2, 1, 8, 8))


class Chaotic(ClientApp):
    """The app, and what happens to it."""

    inner = client_app(task, data, available)

    def __call__(self, message: Message, context: Context) -> Message:
        if message.metadata.message_type != "train":
            return self.inner(message, context)
        sent = payload_in(message)
        *_, client, t = HEADER.unpack(sent[: HEADER.size])
        journal = Path(str(context.node_config["journal"])) / f"{client}.jsonl"
        before = journal.read_text().splitlines() if journal.exists() else []
        chance = random.Random(f"202 {client} {len(before)}")  # each kind at least twice in the first six
        NOW["kind"] = chance.choice(KINDS) if chance.random() < OFTEN else "sound"
        event = {"client": client, "round": t + 1, "kind": NOW["kind"], "time": time.time(), "run": context.run_id}
        with journal.open("a") as file:
            file.write(json.dumps(event) + "\n")
        if NOW["kind"] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        reply = self.inner(message, context)
        if NOW["kind"] == "echo":
            reply.content = payload_record(sent)
        return reply


server = server_app(task, test)
client = Chaotic()
