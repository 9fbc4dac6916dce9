"""How much of the model a device can afford: by memory, bytes and time."""

from __future__ import annotations

import logging
import re

import pytest
from local_grid import lines_of, run_template, template_app, template_config

from fedfibos.analysis.cost import cost
from fedfibos.analysis.process_memory import process_memory, to_build
from fedfibos.flower.measure import Limits, affordable_capacity, round_bytes
from fedfibos.types import Client
from fedfibos.wire.payload import WireError


def cost_of(task, capacity, examples):
    return cost(task.method, task.model, capacity, examples, task.local)


BEFORE = 300 * 2**20
"""Bytes that are resident before a device trains, in these tests."""


def taken(task, capacity, examples):
    """What a device that builds the whole model takes: its slices, if it has any, are derived there."""
    costs = cost_of(task, capacity, examples)
    params = task.model.initial_params()
    submodel = task.method.extract(
        task.model, task.method.init(params), params, Client(0, capacity, 0, task.seed, task.local)
    )
    building = to_build(task.model, submodel, whole=True)
    return process_memory(BEFORE, costs.tensors, costs.bytes_down, costs.bytes_up, building)


def test_capacity_by_memory():
    """Memory of a step falls with the width of a slice; the largest capacity within the limit is taken."""
    app = template_app()
    task = app.task(template_config(**{"method.name": "heterofl"}))
    examples = app.test({})
    everything, half = taken(task, 1.0, examples), taken(task, 0.5, examples)
    assert affordable_capacity(task, examples, Limits(memory=everything), BEFORE) == 1.0
    assert affordable_capacity(task, examples, Limits(memory=everything - 1), BEFORE) == 0.5
    assert affordable_capacity(task, examples, Limits(memory=half - 1), BEFORE) == 0.25
    with pytest.raises(
        WireError,
        match=r"no capacity down to 0.0625 keeps within memory-limit 314572800: 0.0625 takes \d{9} bytes of memory, "
        r"314572800 of them before it trains$",
    ):
        affordable_capacity(task, examples, Limits(memory=BEFORE), BEFORE)


def test_a_device_counts_its_own_process():
    """What is resident there already, with its interpreter, imports and examples, is in what it takes."""
    app = template_app()
    task = app.task(template_config(**{"method.name": "heterofl"}))
    with pytest.raises(WireError, match=r"0.0625 takes (\d+) bytes of memory, (\d+) of them before it trains$") as why:
        affordable_capacity(task, app.test({}), Limits(memory=1e6))
    least, before = map(int, re.findall(r"(\d+) (?:bytes|of them)", str(why.value)))
    assert 200e6 < before < least < before + 60e6


def test_less_capacity_saves_a_mask_no_memory():
    """What is measured is what the method sends: a client of FedFIbOS trains in tensors of full size."""
    app = template_app()
    task = app.task(template_config())
    examples = app.test({})
    everything = taken(task, 1.0, examples)
    assert affordable_capacity(task, examples, Limits(memory=everything), BEFORE) == 1.0
    with pytest.raises(
        WireError,
        match=rf"memory-limit {BEFORE}: 0.0625 takes \d+ bytes of memory, \d+ of them before it trains; a mask is",
    ):
        affordable_capacity(task, examples, Limits(memory=BEFORE), BEFORE)


def test_a_device_trains_nothing_whose_parameters_alone_are_too_large(monkeypatch):
    monkeypatch.setattr("fedfibos.flower.measure.tried", None)
    app = template_app()
    with pytest.raises(WireError, match="a mask is trained"):
        affordable_capacity(app.task(template_config()), app.test({}), Limits(memory=BEFORE), BEFORE)


@pytest.mark.parametrize("method", ["fedfibos", "heterofl"])
def test_capacity_by_bytes(method):
    """Masks and slices both save bytes; the limit is on both ways together."""
    app = template_app()
    task = app.task(template_config(**{"method.name": method}))
    examples = app.test({})
    client = Client(0, 0.5, 0, task.seed, task.local, examples)
    params = task.model.initial_params()
    submodel = task.method.extract(task.model, task.method.init(params), params, client)
    limit = round_bytes(task, client, submodel)
    half = cost_of(task, 0.5, examples)
    assert limit == pytest.approx(half.bytes_down + half.bytes_up, rel=0.04)
    assert affordable_capacity(task, examples, Limits(traffic=limit)) == 0.5
    assert affordable_capacity(task, examples, Limits(traffic=limit - 1)) == 0.25
    assert affordable_capacity(task, examples, Limits(traffic=limit, seconds=60.0)) == 0.5
    with pytest.raises(WireError, match=r"keeps within bytes-per-round 100: 0.0625 takes \d+ bytes a round$"):
        affordable_capacity(task, examples, Limits(traffic=100))
    if method == "fedfibos":
        too_small = Limits(memory=1000, traffic=limit)
        with pytest.raises(
            WireError, match=r"memory-limit 1000 and bytes-per-round \d+: 0.0625 .*; a mask is trained in tensors"
        ):
            affordable_capacity(task, examples, too_small)


def test_a_device_says_which_limit_the_next_larger_capacity_does_not_keep(caplog):
    caplog.set_level(logging.INFO, "flwr")
    app = template_app()
    for method, larger in (("heterofl", "0.5 takes"), ("fedfibos", "0.5 takes")):
        task = app.task(template_config(**{"method.name": method}))
        caplog.clear()
        assert affordable_capacity(task, app.test({}), Limits(traffic=300_000)) == 0.25
        (said,) = [record.getMessage() for record in caplog.records]
        assert re.fullmatch(rf"measured capacity 0.25 within bytes-per-round 300000: {larger} \d+ bytes a round", said)
    caplog.clear()
    assert affordable_capacity(task, app.test({}), Limits(traffic=3_000_000)) == 1.0
    assert caplog.records[0].getMessage() == "measured capacity 1 within bytes-per-round 3000000: the whole model"


def test_capacity_by_time(tmp_path):
    app = template_app()
    task = app.task(template_config())
    assert affordable_capacity(task, app.test({}), Limits(seconds=60.0)) == 1.0
    with pytest.raises(WireError, match="seconds-per-step"):
        affordable_capacity(task, app.test({}), Limits(seconds=1e-9))
    nodes = [{"client-id": n, "seconds-per-step": 60} for n in range(3)]
    run_template(tmp_path / "run", nodes, **{"federation.rounds": 1})
    sent = lines_of(tmp_path / "run")[0]["bytes_by_client"]
    assert sent["0"] == sent["1"] == sent["2"]
