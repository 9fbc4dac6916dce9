"""Seconds of a device that says how fast it is: counted from operations, and not measured."""

from __future__ import annotations

import pytest
from local_grid import run_template, template_app, template_config

from fedfibos.analysis.cost import cost, forward_macs
from fedfibos.flower.measure import Limits, affordable_capacity
from fedfibos.submodel import full
from fedfibos.wire.payload import WireError

NODES = [{"client-id": 0, "capacity": 1.0}]


@pytest.mark.parametrize(("name", "slices"), [("heterofl", True), ("fiarse", False)])
def test_capacity_by_the_speed_that_a_device_says_it_has(name, slices):
    """Seconds of a round are counted from operations, as ``fedfibos plan`` counts them."""
    app = template_app()
    task = app.task(template_config(**{"method.name": name, "local.steps": 4, "local.batch_size": 10}))
    examples, model = app.test({}), task.model
    whole = forward_macs(model, model.initial_params(), full(model.layout), examples)
    second = 3 * 40 * whole  # operations of a round of the whole model
    assert affordable_capacity(task, examples, Limits(round_seconds=1.0, macs_per_second=second)) == 1.0
    assert affordable_capacity(task, examples, Limits(seconds=0.25, examples_per_second=40.0)) == 1.0
    slower = Limits(round_seconds=1.0, macs_per_second=second / 2)
    if not slices:
        with pytest.raises(WireError, match=r"0.0625 takes 2 s a round; a mask is trained in tensors of full size"):
            affordable_capacity(task, examples, slower)
        return
    by_macs = affordable_capacity(task, examples, slower)
    assert by_macs == affordable_capacity(task, examples, Limits(round_seconds=1.0, examples_per_second=20.0))
    assert cost(task.method, model, by_macs, examples, task.local).macs <= whole / 2
    assert cost(task.method, model, 2 * by_macs, examples, task.local).macs > whole / 2


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"macs-per-second": 1e9, "capacity": 0.5}, "must have capacity or limits to measure it by, got both"),
        (
            {"macs-per-second": 1e9},
            "macs-per-second and examples-per-second of the node config are for seconds-per-round",
        ),
        ({"seconds-per-round": 1, "macs-per-second": 1, "examples-per-second": 1}, "examples-per-second, got both"),
        ({"seconds-per-round": -1}, "seconds-per-round of the node config must be a number above 0, got -1"),
        ({"seconds-per-rounds": 1}, "the node config has 'seconds-per-rounds'; did you mean 'seconds-per-round'?"),
        ({"seconds-per-round": "soon"}, "seconds-per-round of the node config must be a number, got 'soon'"),
    ],
)
def test_what_is_wrong_with_a_devices_own_speed(tmp_path, caplog, node, said):
    nodes = [NODES[0], {"client-id": 1, **node}]
    run_template(tmp_path / "run", nodes, **{"federation.rounds": 1, "federation.wait": 0.1})
    assert said in caplog.text
