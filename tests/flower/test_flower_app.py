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
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from local_grid import LocalGrid, Node, lines_of, run_template, server_context, template_app, template_config
from rich.console import Console
from safetensors.torch import load_file
from torch import nn

from fedfibos.analysis.accuracy import answers
from fedfibos.analysis.cost import cost
from fedfibos.analysis.process_memory import process_memory, to_build
from fedfibos.cli import main
from fedfibos.cli.flower_commands import show_traffic
from fedfibos.data import TensorData
from fedfibos.flower import client_app, server_app
from fedfibos.flower.demo import Outcome, Traffic
from fedfibos.flower.launch import LaunchError, Processes, free_port
from fedfibos.flower.measure import Limits, affordable_capacity, round_bytes
from fedfibos.flower.meter import Meter
from fedfibos.flower.new import FILES, TEMPLATE
from fedfibos.flower.server_app import on_test_set
from fedfibos.flower.task import FleetSettings, task_of
from fedfibos.simulation import CheckpointStore
from fedfibos.types import Client
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
        said = {False: "false", ("parameters",): "parameters"}.get(default, said)
        assert told[name].strip() == ("–" if default is dataclasses.MISSING else said)
    written = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]["federation"]
    assert written.keys() == {name for name, default in defaults.items() if default is not None}  # TOML has no None


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


def test_who_joins_is_logged_once_and_capacities_are_on_record(tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    nodes = [NODES[0], {"client-id": 1, "bytes-per-round": "300kB"}]
    run_template(tmp_path / "run", nodes, **{"federation.rounds": 2, "method.name": "heterofl"})
    assert [line["capacities"] for line in lines_of(tmp_path / "run")] == [{"0": 1.0, "1": 0.25}] * 2
    told = [record.getMessage() for record in caplog.records if "joined" in record.getMessage()]
    assert [re.sub(r"\d+ examples", "n examples", text) for text in sorted(told)] == [
        "client 0 joined: capacity 1, n examples",
        "client 1 joined: capacity 0.25, n examples",
    ]


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


def test_the_submodel_of_a_run_is_exported(tmp_path, capsys):
    """The command of docs/how-to/export.md."""
    run_template(tmp_path / "run", NODES, **{"federation.rounds": 1})
    out = tmp_path / "small.safetensors"
    command = ["export", str(tmp_path / "run"), "--capacity", "0.25", "--out", str(out)]
    assert main([*command, "--app", str(TEMPLATE / "fleet.py")]) == 0
    shown, err = capsys.readouterr()
    assert "outputs agree to 0" in shown
    assert err == ""
    half = ["export", str(tmp_path / "run"), "--capacity=0.5", f"--out={tmp_path / 'half.safetensors'}"]
    assert main([*half, "--app", str(TEMPLATE / "fleet.py")]) == 0
    assert "warning: no client on record has capacity 0.5: there are 1, 0.25, 0.0625\n" in capsys.readouterr().err
    task = template_app().task(template_config())
    now = CheckpointStore(tmp_path / "run").load_latest(task.model.layout, print)
    device = Client(id=0, capacity=0.25, round=now.round, seed=task.seed, local=task.local)
    held = task.method.extract(task.model, now.state, now.params, device).gather(now.params.flat)
    written = load_file(out)
    for name, tensor in zip(task.model.layout.names, task.model.layout.views(held), strict=True):
        assert torch.equal(written[name], tensor)


def test_a_model_with_batch_normalisation_is_exported_with_statistics_of_the_apps_calibration_set(tmp_path, capsys):
    run_template(tmp_path / "run", NODES, **{"federation.rounds": 1, "method.name": "heterofl"})
    template = (TEMPLATE / "fleet.py").read_text()
    normalised = template.replace("seed=0)", 'norm="batch", seed=0)')
    assert normalised != template
    (tmp_path / "without.py").write_text(normalised)
    (tmp_path / "with.py").write_text(normalised + '\n\ndef calibration(config):\n    return load("digits").train\n')
    out = tmp_path / "small.safetensors"
    command = ["export", str(tmp_path / "run"), "--capacity", "0.25", "--out", str(out), "--app"]
    assert main([*command, str(tmp_path / "without.py")]) == 2
    assert "must have calibration(config), as its model has batch normalisation" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "with.py")]) == 0
    statistics = load_file(out)["features.1.running_mean"]
    assert statistics.abs().max() > 0.01  # not the initial zeros


APP = """
from __future__ import annotations

from dataclasses import dataclass

import torch

from fedfibos.data import load
from fedfibos.flower import client_app, server_app, task_of
from fedfibos.types import Dataset


@dataclass
class Sizes:
    hidden: int


def task(config):
    from of_the_app import net

    return task_of(net(Sizes(int(config["hidden"])).hidden), config, example=torch.zeros(2, 1, 8, 8))


def data(context):
    return load("digits").train.subset(torch.arange(100))


server = server_app(task)
client = client_app(task, data)
"""


def test_an_app_with_settings_and_modules_of_its_own_is_exported(tmp_path, monkeypatch, capsys):
    """A data class, a module beside the app that is imported when it is called, and a key of the app's own."""
    (tmp_path / "an_app.py").write_text(APP)
    (tmp_path / "of_the_app.py").write_text(
        "from torch import nn\n\n\ndef net(hidden):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, 10))\n"
    )
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        app = importlib.import_module("an_app")
        config = template_config(**{"run-dir": str(tmp_path / "run"), "federation.rounds": 1, "federation.wait": 0.01})
        config["hidden"] = 7
        grid = LocalGrid({100 + n: Node(node, app.client) for n, node in enumerate(NODES)}, config)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            app.server(grid, server_context(config))
    for name in ("an_app", "of_the_app"):
        sys.modules.pop(name)
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["app"] == {"hidden": 7}
    out = tmp_path / "small.safetensors"
    command = ["export", str(tmp_path / "run"), "--capacity", "0.25", "--out", str(out)]
    assert main([*command, "--app", str(tmp_path / "an_app.py")]) == 0
    assert load_file(out)["1.weight"].shape == (7, 64)
    assert str(tmp_path) not in sys.path
    for name in ("an_app", "of_the_app"):
        sys.modules.pop(name)


def test_an_app_without_a_task_or_client_held_scores_cannot_be_exported(tmp_path, capsys):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "broken.py").write_text("import not_there")
    (tmp_path / "config.toml").write_text("seed = 0")
    command = ["export", str(tmp_path), "--capacity", "0.25", "--out", str(tmp_path / "a.onnx"), "--app"]
    assert main([*command, str(tmp_path / "empty.py")]) == 2
    assert "must have a function task(config)" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "none.py")]) == 2
    assert "--app must be the Python file of a Flower app" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "broken.py")]) == 2
    assert "broken.py fails with ModuleNotFoundError: No module named 'not_there'" in capsys.readouterr().err
    nodes = [{**node, "state-dir": str(tmp_path / "scores")} for node in NODES]
    held = {"method.sharing": "client", "federation.scores": "client", "federation.rounds": 1}
    run_template(tmp_path / "run", nodes, **held)
    assert main(["export", str(tmp_path / "run"), *command[2:], str(TEMPLATE / "fleet.py")]) == 2
    assert "the scores of this run are with its clients" in capsys.readouterr().err


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
        ("none", app, "is no run directory: it has no config.toml"),
    ):
        out = str(tmp_path / "a.onnx")
        assert main(["export", str(tmp_path / run), "--capacity", "0.25", "--out", out, *more]) == 2
        err = capsys.readouterr().err
        assert reason in err
        assert err.count("\n") == 1


def test_an_interrupted_demo_says_so(monkeypatch, capsys):
    def interrupted(folder, secure):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedfibos.flower.demo.fleet", interrupted)
    assert main(["flower", "demo"]) == 130
    assert capsys.readouterr().err == "fedfibos: interrupted\n"
    assert main(["flower", "demo", "--method", "fedfibus"]) == 2
    assert "did you mean 'fedfibos'" in capsys.readouterr().err


def test_processes_are_quiet_and_private(tmp_path):
    """Telemetry and update checks are off in every process that is started, and Flower's files stay in the folder."""
    environment = Processes(tmp_path).environment
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert environment["FLWR_HOME"] == str(tmp_path / "home")


def test_a_process_that_ends_early_is_one_line(tmp_path):
    with Processes(tmp_path) as processes:
        processes.start("short", "false")
        with pytest.raises(LaunchError, match=r"short ended with exit code 1: it wrote nothing") as error:
            processes.wait_for_port("short", free_port(), seconds=30)
    assert "\n" not in str(error.value)


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
        WireError, match=r"no capacity down to 0.0625 keeps within memory-limit 1000000000: fisher_from = .per_example"
    ):
        affordable_capacity(task, template_app().test({}), Limits(memory=1e9))


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

    monkeypatch.setattr(importlib.import_module("fedfibos.flower.server_app"), "answers", watched)
    nodes = [{"client-id": n, "capacity": 0.25} for n in range(3)]
    overrides = {"method.preset": "algorithm1", "federation.rounds": 1}
    for limit, wanted in (({}, 3), ({"federation.submodel_clients": 1}, 1)):
        whole.clear()
        run_template(tmp_path / str(len(limit)), nodes, **overrides, **limit)
        assert sum(whole) == 1 + wanted  # the full model too
