"""A server app that cannot go on says why in one line, and tells a fleet's own settings, not the command line's."""

from __future__ import annotations

import io
import logging
import re

import pytest
import torch
from flwr.supercore import log
from local_grid import (
    Deployment,
    LocalGrid,
    Node,
    experiment_of,
    lines_of,
    server_context,
    template_app,
    template_config,
)
from torch import nn

from fedfibos.flower import client_app, server_app, task_of
from fedfibos.runs.reading import RecordError

NODES = [{"client-id": n, "capacity": 1.0} for n in range(3)]


@pytest.fixture
def as_flower():
    """Run an app as ``flwr-serverapp`` does, and hand back what it logs."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger("flwr").addHandler(handler)

    def run(app, config, grid):
        try:
            app(grid, server_context(config))
        except Exception as error:
            log(logging.ERROR, "%s raised an exception", "ServerApp", exc_info=error)
        return text.getvalue()

    yield run
    logging.getLogger("flwr").removeHandler(handler)


class Flat(nn.Module):
    """It cannot be sliced: it sorts its channels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(1, 8, 3), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)).sort(dim=1).values)


def flat(config):
    return task_of(Flat(), config, example=torch.zeros(2, 1, 8, 8))


def ends(said):
    return [line for line in said.splitlines() if line.startswith("the run ends: ")]


def test_a_slice_that_cannot_run_is_one_line(tmp_path, as_flower):
    template = template_app()
    config = template_config(**{"run-dir": str(tmp_path / "run"), "method.name": "heterofl", "federation.wait": 0.01})
    nodes = {n: Node({"client-id": n, "capacity": 0.25}, client_app(flat, template.data)) for n in range(3)}
    said = as_flower(server_app(flat, template.test), config, LocalGrid(nodes, config))
    (line,) = ends(said)
    assert line.startswith("the run ends: no capacity has a submodel of this model: ")
    assert "'conv'" in line
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"federation.rounds": 0}, "federation.rounds"),
        ({"method.name": "fedfibus"}, "did you mean 'fedfibos'"),
        ({"local.learning_rate": 0.1}, "learning_rate"),
    ],
)
def test_settings_that_cannot_be_are_one_line(tmp_path, as_flower, settings, wanted):
    template = template_app()
    config = template_config(**{"run-dir": str(tmp_path / "run"), **settings})
    said = as_flower(template.server, config, LocalGrid({}, config))
    (line,) = ends(said)
    assert wanted in line
    assert "Traceback" not in said


def test_what_a_user_raises_keeps_its_stack(tmp_path, as_flower):
    def broken(config):
        raise ValueError("no such file")

    said = as_flower(server_app(broken), {"run-dir": str(tmp_path)}, LocalGrid({}))
    assert "Traceback" in said
    assert "in broken" in said


def everyone(tmp_path, *overrides):
    short = ("federation.cohort=6", "federation.rounds=2", "local.steps=1", "method.name=fedavg")
    return experiment_of(tmp_path, *short, *overrides)


def test_a_fleet_goes_on_with_another_cohort_and_with_fewer_or_more_rounds(tmp_path):
    out = tmp_path / "run"
    Deployment(everyone(tmp_path)).run(out)
    Deployment(everyone(tmp_path, "federation.rounds=4", "federation.cohort=3")).run(out, resume=True)
    assert [len(line["participants"]) for line in lines_of(out)] == [6, 6, 3, 3]
    longer = Deployment(everyone(tmp_path, "federation.rounds=9", "federation.cohort=3"))
    with pytest.raises(
        RecordError, match=r"has 4 finished rounds: to go on, federation\.rounds must be at least 4, got 3"
    ):
        Deployment(everyone(tmp_path, "federation.rounds=3", "federation.cohort=3")).run(out, resume=True)
    longer.run(out, resume=True)
    assert len(lines_of(out)) == 9


@pytest.mark.parametrize(
    ("overrides", "resume", "message"),
    [
        ((), False, r"add resume=true to the run configuration to go on, or choose another run-dir$"),
        (("local.lr=0.3",), True, r"another experiment: local\.lr is .* there, got 0\.3: choose another run-dir$"),
    ],
)
def test_the_advice_is_in_a_fleets_own_settings(tmp_path, overrides, resume, message):
    Deployment(everyone(tmp_path)).run(tmp_path / "run")
    with pytest.raises(RecordError, match=message) as raised:
        Deployment(everyone(tmp_path, *overrides)).run(tmp_path / "run", resume=resume)
    assert not re.search(r"--\w", str(raised.value))


def test_a_cosine_schedule_keeps_its_rounds(tmp_path):
    Deployment(everyone(tmp_path, "local.schedule=cosine")).run(tmp_path / "run")
    with pytest.raises(RecordError, match=r"a cosine schedule is over all rounds.*choose another run-dir$"):
        Deployment(everyone(tmp_path, "local.schedule=cosine", "federation.rounds=3")).run(
            tmp_path / "run", resume=True
        )
