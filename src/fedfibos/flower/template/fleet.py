"""The whole app: your model, your data, and the two apps that Flower starts. Replace the first three functions."""

import torch
from flwr.app import Context
from torch import nn

from fedfibos.data import load
from fedfibos.data.partition import Partition, partition
from fedfibos.flower import Task, client_app, server_app, task_of
from fedfibos.flower.task import Settings
from fedfibos.models import build
from fedfibos.streams import stream
from fedfibos.types import Dataset

FLEET = 3


def model() -> nn.Module:
    """Any module that maps inputs to logits; equal initial values on all machines, hence the seed."""
    return build("cnn", num_classes=10, input_shape=(1, 8, 8), seed=0)


def data(context: Context) -> Dataset:
    """This device's examples: here, its part of the digits.

    Anything with ``labels``, ``batch`` and ``subset`` (see ``fedfibos.types.Dataset``) will do, for instance
    ``fedfibos.data.TensorData(inputs, labels)``. ``context.node_config`` holds what the device was started with.
    """
    digits = load("digits").train
    parts = partition(digits.labels, Partition("dirichlet", alpha=0.5), FLEET, stream(0, "partition"))
    return digits.subset(parts[int(context.node_config["client-id"])])


def test(config: Settings) -> Dataset:
    """Examples that the server has, to see how training goes; without any, leave out the second argument below."""
    return load("digits").test


def task(config: Settings) -> Task:
    """What server and devices agree on: the model, and the settings in pyproject.toml."""
    return task_of(model(), config, example=torch.zeros(2, 1, 8, 8))


server = server_app(task, test)
client = client_app(task, data)
