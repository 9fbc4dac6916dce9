"""A device of a slice: the module without weights, cut, then allocated; the axes come from the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch
from local_grid import LocalGrid, Node, server_context
from torch import nn

from fedfibos.common.unallocated import without_values, without_weights
from fedfibos.data import TensorData
from fedfibos.flower import client_app, server_app, task_of
from fedfibos.flower.lean import SentOutline, lean_task
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.types import Client
from fedfibos.wire.coding import encode_download
from fedfibos.wire.model_outline import outline_of
from fedfibos.wire.outline import encode_outline

CONFIG = {
    "method.name": "heterofl",
    "federation.rounds": 2,
    "federation.cohort": 3,
    "federation.wait": 0.01,
    "local.steps": 2,
    "local.batch_size": 4,
    "local.momentum": 0.9,
}

CAPACITIES = (1.0, 0.5, 0.25)


def images(context):
    generator = torch.Generator().manual_seed(context.node_config["client-id"])
    return TensorData(torch.randn(12, 1, 8, 8, generator=generator), torch.arange(12) % 5)


def cnn():
    return build("cnn", num_classes=5, input_shape=(1, 8, 8), seed=0, channels=(8, 16))


class Recorded:
    """An app's task function that notes which models clients were given."""

    def __init__(self, module, example):
        self.module, self.example, self.whole = module, example, []

    def __call__(self, config):
        task = task_of(self.module(), config, example=self.example)
        self.whole.append(task.model.has_values)
        return task


def built_whole(monkeypatch):
    """From here on clients build the whole model."""
    monkeypatch.setattr(import_module("fedfibos.flower.client_app"), "lean_task", lambda make, config, outline: None)


def run(out, config, module=cnn, example=None, data=images, capacities=CAPACITIES, **node):
    """The rounds of an app in this process; its final record, and which of the clients' models had values."""
    example = torch.zeros(2, 1, 8, 8) if example is None else example
    on_server, on_clients = Recorded(module, example), Recorded(module, example)
    app = client_app(on_clients, data)
    nodes = {
        100 + n: Node({"client-id": n, **({"capacity": c} if c else {}), **node}, app) for n, c in enumerate(capacities)
    }
    config = {**CONFIG, "run-dir": str(out), **config}
    server_app(on_server)(LocalGrid(nodes, config), server_context(config))
    assert all(on_server.whole)
    return (out / "final.json").read_text(), on_clients.whole


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"method.name": "fedrolex"},
        {"method.name": "fedbrb"},
        {"method.name": "fedfibos-channels"},
        {"method.name": "fedfibos-channels", "local.nested": 0.5},
        {"method.name": "fedfibos-channels", "federation.budget": '["parameters", "macs"]'},
        {"federation.budget": "bytes", "local.absent_labels": "mask"},
    ],
    ids=lambda config: " ".join(map(str, config.values())) or "heterofl",
)
def test_clients_without_the_weights_give_the_same_bytes(tmp_path, monkeypatch, config):
    light, whole = run(tmp_path / "light", config)
    assert whole == [False] * 9  # three declare themselves, three train twice
    built_whole(monkeypatch)
    heavy, whole = run(tmp_path / "heavy", config)
    assert whole == [True] * 9
    assert light == heavy


@pytest.mark.parametrize("name", ["fiarse", "fedfibos", "fedavg"])
def test_clients_of_masks_build_the_whole_model(tmp_path, name):
    _, whole = run(tmp_path, {"method.name": name})
    assert whole == [True] * 9


@pytest.mark.parametrize(
    "node",
    [
        {"bytes-per-round": 3000},
        {"memory-limit": "10GB"},
        {"seconds-per-round": 60.0},
        {"seconds-per-round": 60.0, "macs-per-second": 1e9},
        {"seconds-per-round": 60.0, "examples-per-second": 1e6},
    ],
    ids=lambda node: " ".join(node),
)
def test_a_capacity_is_measured_without_the_weights(tmp_path, node):
    _, whole = run(tmp_path, {"federation.rounds": 1}, capacities=(None, None, None), **node)
    assert not any(whole)


def test_a_device_that_counts_its_seconds_by_unknown_operations_builds_the_whole_model(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("fedfibos.flower.lean"), "_counts", lambda model: False)
    limit = {"seconds-per-round": 60.0, "bytes-per-round": 3000}
    _, whole = run(tmp_path / "measured", {"federation.rounds": 1}, capacities=(None,), **limit)
    assert whole == [False, True, False]  # to declare itself it tries both, and trains without the weights
    _, whole = run(tmp_path / "said", {"federation.rounds": 1}, capacities=(None,), **limit, **{"macs-per-second": 1e9})
    assert whole == [False, False]  # the server counts


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 8)
        self.second = nn.Linear(8, 5)
        self.scale = nn.Parameter(torch.rand(64))
        self.scale.requires_grad_(False)

    def forward(self, x):
        return self.second(self.first(x.flatten(1) * self.scale).relu())


class Draws(nn.Module):
    """A buffer that is drawn after the weights: another one where they are not drawn."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 8)
        self.second = nn.Linear(8, 5)
        self.register_buffer("noise", torch.randn(64))

    def forward(self, x):
        return self.second(self.first(x.flatten(1) + self.noise).relu())


class Emptied(Draws):
    """A buffer and a plain tensor that ``torch.empty`` gives."""

    def __init__(self):
        super().__init__()
        self.noise = torch.empty(64).fill_(0.5)
        self.scale = torch.empty(1).fill_(2.0)


class Looks(Draws):
    """A module that runs itself while it is built."""

    def __init__(self):
        super().__init__()
        self.noise.zero_()
        self.width = int(self.first(torch.ones(1, 64)).abs().sum().item()) * 0 + 8


@pytest.mark.parametrize("module", [Frozen, Draws, Emptied, Looks])
def test_what_cannot_be_built_so_is_built_whole(tmp_path, monkeypatch, module):
    light, whole = run(tmp_path / "light", {}, module)
    assert any(whole)  # a device of the fleet built the whole model
    built_whole(monkeypatch)
    assert run(tmp_path / "heavy", {}, module)[0] == light


def test_a_module_that_is_made_once_is_used_as_it_is(tmp_path):
    module = cnn()
    _, whole = run(tmp_path, {}, lambda: module)
    assert whole == [True] * 9


def test_without_weights_trained_parameters_have_no_memory_and_ties_stay():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight
            self.made = nn.Parameter(torch.ones(4))
            self.again = self.made
            self.norm = nn.BatchNorm1d(4)
            self.fixed = nn.Parameter(torch.ones(3), requires_grad=False)

    with without_weights():
        module = Tied()
    assert {name: p.is_meta for name, p in module.named_parameters()} == {
        "made": True,
        "fixed": False,
        "embed.weight": True,
        "norm.weight": True,
        "norm.bias": True,
    }
    assert module.head.weight is module.embed.weight
    assert module.norm.running_var.tolist() == [1.0] * 4
    assert not nn.Linear(2, 2).weight.is_meta
    assert without_values(module, ["made", "embed.weight", "norm.weight", "norm.bias"]) is None
    assert without_values(module, ["made", "embed.weight", "norm.weight"]) == "norm.bias"


def test_an_outline_of_another_model_builds_the_whole_one():
    other = build("cnn", num_classes=5, input_shape=(1, 8, 8), channels=(8, 24))
    data = encode_outline(outline_of(model_of(other, example=torch.zeros(2, 1, 8, 8))))
    assert lean_task(Recorded(cnn, torch.zeros(2, 1, 8, 8)), CONFIG, data) is None


ANSWER = """
import json, resource, sys
from pathlib import Path
import numpy, torch
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from fedfibos.data import TensorData
from fedfibos.flower.client_app import client_app
from fedfibos.flower.messages import add_outline, payload_in, payload_record
from fedfibos.flower.task import task_of
from fedfibos.models import build

folder, config = Path(sys.argv[1]), json.loads(sys.argv[2])
imported = sorted(sys.modules)
example = torch.zeros(2, 64)
hidden = {"input_shape": (64,), "hidden": (2048, 2048)}
app = client_app(
    lambda config: task_of(build("mlp", num_classes=10, **hidden), config, example=example),
    lambda context: TensorData(torch.ones(20, 64), torch.arange(20) % 10),
)
TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
content = payload_record((folder / "payload").read_bytes())
message = Message(add_outline(content, (folder / "outline").read_bytes() or None), dst_node_id=1, message_type="train")
message.metadata.__dict__["_message_id"] = "1"
used = next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
limit = used * 1024 + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
reply = app(message, Context(1, 1, {"client-id": 0}, RecordDict(), config))
payload_in(reply)
print(json.dumps([name for name in ("sympy", "torch._dynamo", "matplotlib", "pandas") if name in sys.modules]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the data segment are Linux's")
@pytest.mark.slow
def test_a_client_answers_under_a_limit_that_the_whole_model_breaks(tmp_path):
    """4.3 million weights are 17 MB, and to train all of them takes five times that; of a sixteenth, 1 MB."""
    config = {**CONFIG, "local.batch_size": 20}
    module = build("mlp", num_classes=10, input_shape=(64,), hidden=(2048, 2048))
    task = task_of(module, config, example=torch.zeros(2, 64))
    params = task.model.initial_params()
    outline = SentOutline(task).at_enrolment(task.method.init(params), params)

    def answer(capacity, outline, limit=28 * 2**20):
        client = Client(0, capacity, 0, 0, task.local)
        submodel = task.method.extract(task.model, task.method.init(params), params, client)
        (tmp_path / "payload").write_bytes(encode_download(client, submodel, params, task.model))
        (tmp_path / "outline").write_bytes(outline or b"")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", ANSWER, str(tmp_path), json.dumps(config), str(limit)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)

    within = answer(1 / 16, outline)
    assert (within.returncode, within.stdout.strip()) == (0, "[]"), within.stderr
    for broken in (answer(1.0, outline), answer(1 / 16, None)):
        assert broken.returncode != 0
        assert re.search("MemoryError|not enough memory|Cannot allocate|bad_alloc", broken.stderr)
