"""The whole app: your model, your data, and the two apps that Flower starts. Replace the first three functions."""

import torch
from flwr.app import Context
from torch import nn

from fedfibos import (
    Dataset,
    FleetTask,
    Partition,
    Settings,
    build,
    client_app,
    load,
    partition,
    server_app,
    stream,
    task_of,
)

FLEET = 3


def model() -> nn.Module:
    """Any module that maps inputs to logits; equal initial values on all machines, hence the seed."""
    return build("cnn", num_classes=10, input_shape=(1, 8, 8), seed=0)


def data(context: Context) -> Dataset:
    """This device's examples: here, its part of the digits.

    Anything with ``labels``, ``batch`` and ``subset`` (see ``fedfibos.Dataset``) will do, for instance
    ``fedfibos.TensorData(inputs, labels)``. ``context.node_config`` holds what the device was started with.
    """
    digits = load("digits").train
    parts = partition(digits.labels, Partition("dirichlet", alpha=0.5), FLEET, stream(0, "partition"))
    return digits.subset(parts[int(context.node_config["client-id"])])


def test(config: Settings) -> Dataset:
    """Examples that the server has, to see how training goes; without any, leave out the second argument below."""
    return load("digits").test


def task(config: Settings) -> FleetTask:
    """What server and devices agree on: the model, and the settings in pyproject.toml."""
    return task_of(model(), config, example=torch.zeros(2, 1, 8, 8))


server = server_app(task, test)
client = client_app(task, data)
