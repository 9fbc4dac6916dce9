"""Devices that give limits: the capacity that ``fedfibos plan`` finds, measured again, on record."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from local_grid import LocalGrid, Node, lines_of, server_context
from safetensors.torch import load_file

from fedfibos.analysis.fitting import Work, examples_of, fits
from fedfibos.cli import main
from fedfibos.config.devices import Device
from fedfibos.data import TensorData
from fedfibos.flower import affordable, client_app, server_app, task_of
from fedfibos.flower.measured import MOMENTS, Measured
from fedfibos.flower.messages import Member, note_in
from fedfibos.models import build
from fedfibos.simulation import CheckpointStore
from fedfibos.types import Client

CONFIG = {
    "method.name": "fedfibos-channels",
    "federation.rounds": 1,
    "federation.cohort": 3,
    "federation.wait": 0.01,
    "local.steps": 2,
    "local.batch_size": 4,
}
BEFORE = 300 * 2**20


def task(config):
    return task_of(
        build("cnn", num_classes=5, input_shape=(1, 8, 8), seed=0, channels=(8, 16)),
        config,
        example=torch.zeros(2, 1, 8, 8),
    )


def images(context):
    generator = torch.Generator().manual_seed(context.node_config["client-id"])
    return TensorData(torch.randn(12, 1, 8, 8, generator=generator), torch.arange(12) % 5)


def plan(device, config=CONFIG, examples=12):
    """What ``fedfibos plan`` says of a class of such devices, with examples of its own."""
    made = task(config)
    work = Work(images(Context(0)), made.local, made.federation.budget, examples_of(made.local, examples))
    (fit,) = fits(made.method, made.model, [device], work)
    return fit


class Context:
    def __init__(self, client):
        self.node_config = {"client-id": client}


@pytest.fixture
def known_memory(monkeypatch):
    monkeypatch.setattr(import_module("fedfibos.flower.client_app"), "now_resident", lambda: BEFORE)


def run(out, nodes, **config):
    config = {**CONFIG, "run-dir": str(out), **config}
    app = client_app(task, images)
    grid = LocalGrid({100 + n: Node({"client-id": n, **node}, app) for n, node in enumerate(nodes)}, config)
    server_app(task)(grid, server_context(config))
    return lines_of(out), grid


@pytest.mark.parametrize(
    ("node", "limits"),
    [
        ({"bytes-per-round": 9000}, {"bytes": 9000}),
        ({"bytes-per-round": "6.5kB"}, {"bytes": 6500}),
        ({"seconds-per-round": 2.0, "macs-per-second": 3e5}, {"seconds": 2.0, "macs_per_second": 3e5}),
        ({"seconds-per-step": 1.0, "macs-per-second": 3e5}, {"seconds": 2.0, "macs_per_second": 3e5}),
        ({"seconds-per-round": 2.0, "examples-per-second": 2.0}, {"seconds": 2.0, "examples_per_second": 2.0}),
        ({"memory-limit": BEFORE + 107 * 2**20}, {"memory": 107 * 2**20}),
        (
            {"memory-limit": BEFORE + 106 * 2**20, "bytes-per-round": 9000},
            {"memory": 106 * 2**20, "bytes": 9000},
        ),
    ],
)
def test_a_device_gets_what_the_plan_says(tmp_path, known_memory, node, limits):
    fit = plan(Device("one", 1.0, **limits))
    assert fit.capacity is not None
    lines, _ = run(tmp_path / "run", [node])
    assert lines[0]["capacities"] == {"0": fit.capacity}
    assert lines[0]["measured"] == {"0": {"capacity": fit.capacity, "why": "it joined"}}


@pytest.mark.parametrize("method", ["heterofl", "fedrolex", "fedbrb"])
def test_so_for_every_method_that_slices(tmp_path, method):
    config = {"method.name": method}
    fit = plan(Device("one", 1.0, bytes=9000), {**CONFIG, **config})
    lines, _ = run(tmp_path / "run", [{"bytes-per-round": 9000}], **config)
    assert lines[0]["capacities"] == {"0": fit.capacity}
    assert fit.capacity not in (1.0, 0.5, 0.25, 0.125, 0.0625)


def test_a_device_whose_limits_nothing_keeps_is_refused_in_the_plans_words(tmp_path):
    fit = plan(Device("one", 1.0, bytes=200))
    lines, _ = run(tmp_path / "run", [{"capacity": 0.5}, {"bytes-per-round": 200}])
    assert lines[0]["participants"] == [0]
    assert lines[0]["refused"] == {"node 101": fit.left_out}
    assert fit.left_out.startswith("the smallest submodel takes")


def test_a_limit_beyond_every_number_of_bytes_is_none(tmp_path):
    lines, _ = run(tmp_path / "run", [{"bytes-per-round": 1e30, "memory-limit": 1e30}])
    assert lines[0]["capacities"] == {"0": 1.0}


def test_later_rounds_keep_to_the_limits(tmp_path):
    """Channels are chosen anew in every round: what they cost is bounded each time."""
    node = {"bytes-per-round": 9000}
    lines, _ = run(tmp_path / "run", [{"capacity": 1.0}, node, node], **{"federation.rounds": 4})
    sent = [sum(line["bytes_by_client"]["1"].values()) for line in lines]
    assert max(sent) < 9000 + 300  # payloads have headers and checksums besides
    assert all(line["capacities"]["1"] == line["capacities"]["2"] for line in lines)


APP = """
import torch
from fedfibos.data import TensorData
from fedfibos.flower import task_of
from fedfibos.models import build

def task(config):
    module = build("cnn", num_classes=5, input_shape=(1, 8, 8), seed=0, channels=(8, 16))
    return task_of(module, config, example=torch.zeros(2, 1, 8, 8))

def calibration(config):
    return TensorData(torch.randn(12, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 5)
"""


def test_what_is_exported_keeps_to_the_limits_too(tmp_path):
    """Slices of that capacity alone would take more operations: with devices of one the record has both."""
    node = {"seconds-per-round": 2.0, "macs-per-second": 1.2e5}
    lines, _ = run(tmp_path / "run", [{"capacity": 1.0}, node], **{"federation.rounds": 4, "local.lr": 0.5})
    capacity = lines[-1]["capacities"]["1"]
    assert lines[-1]["limits"] == {str(capacity): {"macs": 10000}}
    (tmp_path / "limited_app.py").write_text(APP)
    out = tmp_path / "small.safetensors"
    command = ["export", str(tmp_path / "run"), f"--capacity={capacity}", f"--out={out}"]
    assert main([*command, "--app", str(tmp_path / "limited_app.py")]) == 0
    made = task(CONFIG)
    now = CheckpointStore(tmp_path / "run").load_latest(made.model.layout, print)
    device = Client(1, capacity, now.round, 0, made.local, limits=(("macs", 10000),))
    held = made.method.extract(made.model, now.state, now.params, device)
    free = made.method.extract(made.model, now.state, now.params, replace(device, limits=()))
    written = load_file(out)
    assert sum(written[name].numel() for name in made.model.layout.names) == held.num_held
    assert made.model.macs.at({**made.model.axes.sizes, **dict(free.widths)}) > 10000
    assert held.num_held < free.num_held


def test_masks_keep_to_the_capacities_that_devices_try(tmp_path):
    lines, _ = run(tmp_path / "run", [{"bytes-per-round": 9000}], **{"method.name": "fedfibos"})
    assert lines[0]["capacities"]["0"] in (1.0, 0.5, 0.25, 0.125, 0.0625)
    assert lines[0]["measured"]["0"]["why"] == "it joined"


def speeds(monkeypatch, values):
    """What the device measures, one after another."""
    left = list(values)
    monkeypatch.setattr(affordable, "measured_speed", lambda task, client: left.pop(0))


def test_capacities_are_measured_again_on_the_schedule(tmp_path, monkeypatch):
    speeds(monkeypatch, [3e5, 1e5, 3e5])
    lines, _ = run(
        tmp_path / "run",
        [{"seconds-per-round": 2.0}],
        **{"federation.rounds": 5, "federation.measure_every": 2},
    )
    fast, slow = (plan(Device("one", 1.0, seconds=2.0, macs_per_second=speed)).capacity for speed in (3e5, 1e5))
    assert slow < fast
    assert [line.get("measured") for line in lines] == [
        {"0": {"capacity": fast, "why": "it joined", "macs_per_second": 3e5}},
        None,
        {"0": {"capacity": slow, "why": "every 2 rounds", "was": fast, "macs_per_second": 1e5}},
        None,
        {"0": {"capacity": fast, "why": "every 2 rounds", "was": slow, "macs_per_second": 3e5}},
    ]
    assert [line["capacities"]["0"] for line in lines] == [fast, fast, slow, slow, fast]


def test_a_missed_deadline_has_the_speed_measured_at_the_next_contact(tmp_path, monkeypatch):
    speeds(monkeypatch, [3e5, 1e5])
    config = {**CONFIG, "run-dir": str(tmp_path / "run"), "federation.rounds": 2, "federation.deadline": 30.0}
    app, asked = client_app(task, images), []

    def once(message, reply):
        asked.append(message.metadata.message_type)
        return [] if asked.count("train") == 1 and asked[-1] == "train" else [reply]

    slow, other = (
        Node({"client-id": 0, "seconds-per-round": 2.0}, app, once),
        Node({"client-id": 1, "capacity": 0.5}, app),
    )
    grid = LocalGrid({100: slow, 101: other}, config)
    server_app(task)(grid, server_context(config))
    first, second = lines_of(tmp_path / "run")
    assert first["rejected"] == {"0": "no answer within 30 s"}
    measured = second["measured"]["0"]
    assert measured["why"] == "round 1: no answer within 30 s"
    assert measured["was"] == first["capacities"]["0"] > measured["capacity"] == second["capacities"]["0"]
    assert asked == ["query", "train", "query", "train"]
    note = "this device's work of round 1 was not used: no answer within 30 s"
    assert [note_in(message) for message in grid.asked if message.metadata.dst_node_id == 100] == [
        None,
        None,
        note,
        None,
    ]


def test_one_busy_moment_does_not_count_among_several(monkeypatch):
    measured = Measured(task(CONFIG))

    def at(speed):
        device = Device("client 0", 1.0, seconds=2.0, macs_per_second=speed)
        return measured.member(Member(0, 1.0, 12, 7, device=device, measured=True)).capacity

    usual = [at(3e5) for _ in range(MOMENTS)]
    assert at(1e5) == at(1e5) == usual[0]
    assert at(1e5) < usual[0]


def test_what_was_measured_is_known_again_after_a_resumption():
    past = [
        {"measured": {"0": {"capacity": 0.5, "why": "it joined", "macs_per_second": speed}}}
        for speed in (3e5, 3e5, 3e5)
    ]
    measured = Measured(task(CONFIG), past)
    device = Device("client 0", 1.0, seconds=2.0, macs_per_second=1e4)
    member = measured.member(Member(0, 1.0, 12, 7, device=device, measured=True))
    assert member.capacity == plan(replace(device, macs_per_second=3e5)).capacity
    assert measured.over()[0]["why"] == "it came back"
    assert measured.over() == {}


def test_a_speed_is_measured_where_it_is_not_said(tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    lines, _ = run(tmp_path / "run", [{"seconds-per-round": 60.0}])
    assert lines[0]["capacities"] == {"0": 1.0}
    assert lines[0]["measured"]["0"]["macs_per_second"] > 0
    assert "operations of training a second, with capacity 1" in caplog.text
    assert json.dumps(lines[0])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"federation.measure_every": -1}, "federation.measure_every must be at least 1, got -1"),
        ({"federation.measure_every": 0}, "federation.measure_every must be at least 1, got 0"),
    ],
)
def test_a_schedule_that_cannot_be(config, said):
    with pytest.raises(ValueError, match=said):
        task({**CONFIG, **config})


def test_a_memory_limit_below_what_the_process_takes_is_refused(tmp_path, known_memory):
    lines, _ = run(tmp_path / "run", [{"capacity": 0.5}, {"memory-limit": BEFORE}])
    assert lines[0]["refused"] == {
        "node 101": f"memory-limit is {BEFORE} bytes, its process takes {BEFORE} before it trains"
    }
