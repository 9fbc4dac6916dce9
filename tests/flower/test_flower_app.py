"""The app that ``fedfibos flower new`` writes, its settings, and capacities that a device measures."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import logging
import math
import re
import socket
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from local_grid import LocalGrid, Node, lines_of, run_template, server_context, template_app, template_config
from rich.console import Console
from torch import nn

from fedfibos.analysis.accuracy import answers
from fedfibos.cli import main
from fedfibos.cli.flower_commands import show_traffic
from fedfibos.data import TensorData
from fedfibos.flower import client_app, server_app
from fedfibos.flower.demo import Outcome, Traffic
from fedfibos.flower.measure import Limits, affordable_capacity
from fedfibos.flower.meter import Meter
from fedfibos.flower.new import FILES, TEMPLATE
from fedfibos.flower.serving import on_test_set
from fedfibos.flower.task import FleetSettings, task_of
from fedfibos.wire.payload import WireError

NODES = [{"client-id": n, "capacity": capacity} for n, capacity in enumerate((1.0, 0.25, 0.0625))]


def test_the_app_runs_as_it_is_written(tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")  # other tests quiet it
    final = run_template(tmp_path / "run", NODES, **{"federation.rounds": 2, "federation.evaluate_every": 2})
    lines = lines_of(tmp_path / "run")
    told = [record.getMessage() for record in caplog.records if "round" in record.getMessage()]
    assert any(re.match(r"round 1 of 2: loss \d\.\d+, 3 of 3 clients", text) for text in told)
    assert any(
        re.match(r"round 2 of 2: loss \d\.\d+, global \d+\.\d % \(submodels \d+\.\d %\), 3", text) for text in told
    )
    assert [line["participants"] for line in lines] == [[0, 1, 2]] * 2
    assert set(lines[1]["evaluation"]["global"]["submodels"]) == {"1.0", "0.25", "0.0625", "mean"}
    assert final["rounds"] == 2
    assert 0 <= final["global_accuracy"]["full"]["last"] <= 1
    sent = lines[0]["bytes_by_client"]
    assert sent["0"]["down"] > 3 * sent["1"]["down"] > 9 * sent["2"]["down"]


def test_new_writes_a_page_and_never_over_a_file(tmp_path, capsys):
    assert main(["flower", "new", str(tmp_path / "app")]) == 0
    assert {path.name for path in (tmp_path / "app").iterdir()} == set(FILES)
    assert len((tmp_path / "app" / "fleet.py").read_text().splitlines()) <= 60
    capsys.readouterr()
    assert main(["flower", "new", str(tmp_path / "app")]) == 2
    assert capsys.readouterr().err == f"fedfibos: {tmp_path / 'app' / 'pyproject.toml'} exists: choose another folder\n"


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"method.name": "fedfibus"}, "did you mean 'fedfibos'"),
        ({"method.skope": "layer"}, "did you mean 'scope'"),
        ({"local.stepz": 3}, "did you mean 'steps'"),
        ({"federation.rounds": 0}, "federation.rounds must be at least 1, got 0"),
        ({"federation.min_participants": 4}, "min_participants must be at most cohort, 3, got 4"),
        ({"federation.deadline": 0.0}, "federation.deadline must be above 0"),
        ({"federation.cohorts": 3}, "federation.cohorts"),
        ({"federation.scores": "client"}, "needs method fedfibos with sharing = 'client'"),
        (
            {"federation.scores": "client", "method.sharing": "client", "method.criterion": "ssp"},
            "needs criterion = 'fisher' and prior = 'magnitude'",
        ),
    ],
)
def test_wrong_settings_are_one_line(overrides, reason):
    with pytest.raises(ValueError, match=reason) as error:
        template_app().task(template_config(**overrides))
    assert "\n" not in str(error.value)


def test_settings_are_resolved_into_the_run_directory(tmp_path):
    run_template(tmp_path / "run", NODES, **{"federation.rounds": 1, "method.name": "fiarse"})
    text = (tmp_path / "run" / "config.toml").read_text()
    assert 'name = "fiarse"' in text
    assert 'gradient = "tcb"' in text
    with pytest.raises(Exception, match="holds another experiment: seed is 0 there, got 1"):
        run_template(tmp_path / "run", NODES, **{"federation.rounds": 1, "method.name": "fiarse", "seed": 1})


def test_the_page_and_the_template_have_every_federation_key():
    """With the defaults that the code has."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "fleet_settings.md").read_text()
    told = dict(re.findall(r"^\| `federation\.(\w+)` \| `?([^|`]+)`? \|", page, re.MULTILINE))
    defaults = {field.name: field.default for field in dataclasses.fields(FleetSettings)}
    assert told.keys() == defaults.keys()
    for name, default in defaults.items():
        said = f"{default:g}" if isinstance(default, float) else str(default)
        said = "false" if default is False else {(): "[]", ("parameters",): "parameters"}.get(default, said)
        assert told[name].strip() == ("–" if default is dataclasses.MISSING else said)
    written = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]["federation"]
    assert written.keys() == {name for name, default in defaults.items() if default is not None}  # TOML has no None


def test_the_servers_own_examples_are_looked_at():
    """As in a simulation: before the first round, and as a fault of the data."""
    app = template_app()
    task, test = app.task(template_config()), app.test({})
    inputs = torch.zeros(6, 1, 8, 8)
    inputs[4, 0, 2, 3] = math.nan
    broken = TensorData(inputs, torch.arange(6))
    with pytest.raises(ValueError, match=r"^the server's data: 1 of 6 test examples .*; fill these inputs in"):
        on_test_set(task, broken)
    with pytest.raises(ValueError, match=r"^the server's data: 1 of 6 calibration examples .*; fill these inputs in"):
        on_test_set(task, test, broken)


def test_who_joins_is_logged_once_and_capacities_are_on_record(tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    nodes = [NODES[0], {"client-id": 1, "bytes-per-round": "300kB"}]
    run_template(tmp_path / "run", nodes, **{"federation.rounds": 2, "method.name": "heterofl"})
    assert [line["capacities"] for line in lines_of(tmp_path / "run")] == [{"0": 1.0, "1": 0.467}] * 2
    told = [record.getMessage() for record in caplog.records if "joined" in record.getMessage()]
    assert [re.sub(r"\d+ examples", "n examples", text) for text in sorted(told)] == [
        "client 0 joined: capacity 1, n examples",
        "client 1 joined: capacity 0.467, n examples",
    ]


def test_the_two_kinds_of_run_directory_are_told_apart(tmp_path, capsys):
    """One line each, which says what to do."""
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text("seed = 0")
    (tmp_path / "simulated").mkdir()
    (tmp_path / "simulated" / "config.toml").write_text('[model]\nname = "mlp"')
    (tmp_path / "none").mkdir()
    app = ["--app", str(TEMPLATE / "fleet.py")]
    for run, more, reason in (
        ("flower", [], "is the run directory of a Flower app: pass --app"),
        ("simulated", app, "is a run directory of the simulator: leave out --app"),
        ("none", app, "must be a run directory, it has no config.toml"),
    ):
        out = str(tmp_path / "a.onnx")
        assert main(["export", str(tmp_path / run), "--capacity", "0.25", "--out", out, *more]) == 2
        err = capsys.readouterr().err
        assert reason in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"[]", b"{}", b"\xff", b"a=" + b"[" * 3000 + b"]" * 3000])
def test_a_damaged_record_is_named_by_export(tmp_path, capsys, content):
    (tmp_path / "config.toml").write_bytes(content)
    out = str(tmp_path / "a.onnx")
    assert main(["export", str(tmp_path), "--capacity", "0.25", "--out", out]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"fedfibos: {tmp_path / 'config.toml'} is damaged: it is not valid TOML: ")
    assert err.count("\n") == 1


def test_a_meter_counts_what_passes():
    """An echo behind the meter: as many bytes come back as went in, and it stops with connections open."""
    with socket.create_server(("127.0.0.1", 0)) as server, Meter(server.getsockname()[1]) as meter:
        client = socket.create_connection(("127.0.0.1", meter.port))
        there, _ = server.accept()
        client.sendall(bytes(100_000))
        got = b""
        while len(got) < 100_000:
            got += there.recv(65536)
        there.sendall(bytes(300))
        assert len(client.recv(65536)) == 300
        assert (meter.up, meter.down) == (100_000, 300)
    client.close()
    there.close()


def test_the_app_and_the_library_agree_on_initial_values():
    app = template_app()
    one, other = (app.task(template_config()).model.initial_params() for _ in range(2))
    assert torch.equal(one.flat, other.flat)


def test_a_demo_that_lost_a_capacity_says_so_last_and_ends_with_its_own_code(monkeypatch, capsys):
    lost = {"rejected_classes": {"0.25": {"rounds": 3, "of": 4, "reason": "no answer within 600 s"}}}
    evaluation = {"global": {"full": 0.9, "submodels": {"1.0": 0.9}}}
    outcome = Outcome([{"evaluation": evaluation}] * 4, lost, [Traffic(0, 1.0, 1, 1, 1, 1)], 100)
    running = SimpleNamespace(run=lambda *arguments: outcome)
    monkeypatch.setattr("fedfibos.flower.demo.fleet", lambda folder, secure: contextlib.nullcontext(running))
    assert main(["flower", "demo"]) == 3
    assert capsys.readouterr().out.splitlines()[-1].startswith("capacity 0.25: all its clients were rejected in 3 of")
    outcome.final.clear()
    assert main(["flower", "demo"]) == 0


def test_the_demo_ends_with_the_metric_of_the_task():
    """An app of another task, kept with --keep, has no accuracy."""

    def last_line(evaluation):
        console = Console(width=80, file=io.StringIO())
        show_traffic(Outcome([{"evaluation": evaluation}], {}, [Traffic(0, 1.0, 1, 1, 1, 1)], 100), console)
        return console.file.getvalue().splitlines()[-1]

    errors = {"full": 12.3456, "submodels": {"1.0": 12.3456, "0.5": None, "mean": 12.3456}}
    metrics = {"mse": {"better": "lower", "share": False}}
    line = "mean squared error (lower is better) on the test set: full model 12.35; submodels 1.0: 12.35, mean: 12.35"
    assert last_line({"metrics": metrics, "global": errors}) == line
    line = "accuracy on the test set: full model 90.0 %; submodels 1.0: 90.0 %"
    assert last_line({"global": {"full": 0.9, "submodels": {"1.0": 0.9}}}) == line


def test_the_byte_table_fits_80_columns():
    """Nothing is cut off in the narrowest terminal."""
    evaluation = {"global": {"full": 0.9, "submodels": {"1.0": 0.9}}}
    traffic = [Traffic(n, 0.0625, 900_000, 1_200_000, 1_000_000, 1_300_000) for n in range(3)]
    console = Console(width=80, file=io.StringIO())
    show_traffic(Outcome([{"evaluation": evaluation}] * 2, {}, traffic, 379_048), console)
    text = console.file.getvalue()
    assert "…" not in text
    assert text.count("500.0 kB") == 3
    assert "158.3%" in text


def test_a_task_that_cannot_be_trained_is_one_line_at_any_capacity():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    config = {"method.name": "fedfibos", "method.fisher_from": "per_example"}
    task = task_of(module, {**config, "federation.rounds": 1, "federation.cohort": 1})
    with pytest.raises(
        WireError,
        match=r"no capacity down to 0.0625 keeps within memory-limit 5000000000: fisher_from = .per_example",
    ):
        affordable_capacity(task, template_app().test({}), Limits(memory=5e9))


@pytest.mark.parametrize(
    ("device", "reason"),
    [("cude", "got 'cude': "), ("meta:x", "got 'meta:x': "), (0, "device of the node config must be text, got 0")],
)
def test_a_device_that_cannot_compute_where_it_should_takes_no_part(device, reason, tmp_path, caplog):
    nodes = [{"client-id": 0, "capacity": 1.0}, {"client-id": 1, "capacity": 1.0, "device": device}]
    run_template(tmp_path / "run", nodes, **{"federation.rounds": 1})
    (line,) = lines_of(tmp_path / "run")
    assert line["participants"] == [0]
    (refused,) = line["refused"].values()
    assert refused.startswith("device of the node config must be ")
    assert reason in refused
    assert "\n" not in refused


def test_arrays_are_written_as_text():
    """Flower's configuration has no arrays."""
    overrides = {"local.schedule": "milestones", "local.milestones": "[3, 6]", "local.betas": "[0.9, 0.99]"}
    task = template_app().task(template_config(**overrides))
    assert (task.local.milestones, task.local.betas) == ((3, 6), (0.9, 0.99))
    with pytest.raises(ValueError, match=r"local\.milestones"):
        template_app().task(template_config(**{"local.milestones": "[3, six]"}))
    with pytest.raises(ValueError, match="'milestones' needs milestones"):
        template_app().task(template_config(**{"local.schedule": "milestones"}))


def test_bytes_on_record_are_all_that_travel_where_clients_hold_their_scores(tmp_path):
    overrides = {"method.sharing": "blend", "method.prior": "magnitude", "method.fisher": "held"}
    overrides |= {"federation.scores": "client", "federation.rounds": 2}
    nodes = [{"client-id": n, "capacity": 0.25, "state-dir": str(tmp_path / "devices")} for n in range(3)]
    app = template_app()
    config = template_config(**{"run-dir": str(tmp_path / "run"), "federation.wait": 0.01, **overrides})
    sizes = []

    def counted(asked, reply):
        sizes.extend(len(m.content["payload"]["payload"].data) for m in (asked, reply) if "payload" in m.content)
        return [reply]

    grid = LocalGrid({100 + n: Node(node, app.client, counted) for n, node in enumerate(nodes)}, config)
    app.server(grid, server_context(config))
    assert sum(sum(line["bytes"].values()) for line in lines_of(tmp_path / "run")) == sum(sizes)


@pytest.mark.parametrize(("scores", "warned"), [("server", "frozen weights or buffers"), ("client", "initial values")])
def test_a_device_with_other_frozen_weights_is_named(tmp_path, caplog, scores, warned):
    """No round sends them: nothing else would show that server and devices train different models."""

    def task(config, seed=0):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
        module[1].requires_grad_(False)
        return task_of(module, config)

    examples = template_app().test({})
    alike = client_app(task, lambda context: examples)
    other = client_app(lambda config: task(config, seed=1), lambda context: examples)
    config = {"method.name": "fedfibos", "method.sharing": "client", "local.steps": 1, "federation.scores": scores}
    config |= {
        "federation.rounds": 2,
        "federation.cohort": 3,
        "federation.wait": 0.01,
        "run-dir": str(tmp_path / "run"),
    }
    nodes = {
        100 + n: Node({"client-id": n, "capacity": 0.5, "state-dir": str(tmp_path)}, other if n == 1 else alike)
        for n in range(3)
    }
    with torch.random.fork_rng():
        server_app(task)(LocalGrid(nodes, config), server_context(config))
    assert caplog.text.count("has other") == 1
    assert re.search(rf"client 1 has other {warned}", caplog.text)


def test_as_many_personal_submodels_are_evaluated_as_the_task_says(tmp_path, monkeypatch):
    """Each takes the whole test set: with many devices connected that is the server's longest work."""
    whole: list[bool] = []

    def watched(model, params, trial, *rest):
        whole.append(trial.indices is None)
        return answers(model, params, trial, *rest)

    monkeypatch.setattr(importlib.import_module("fedfibos.flower.serving"), "answers", watched)
    nodes = [{"client-id": n, "capacity": 0.25} for n in range(3)]
    overrides = {"method.preset": "algorithm1", "federation.rounds": 1}
    for limit, wanted in (({}, 3), ({"federation.submodel_clients": 1}, 1)):
        whole.clear()
        run_template(tmp_path / str(len(limit)), nodes, **overrides, **limit)
        assert sum(whole) == 1 + wanted  # the full model too
