"""``fedfibos watch``: a run as it is now and while it goes on, in 80 columns, of the simulator and of a fleet."""

from __future__ import annotations

import io
import json
import threading
import time

import pytest
from rich.console import Console

from fedfibos.cli import main
from fedfibos.cli.watch import screen, watch_run
from fedfibos.common.formatting import duration
from fedfibos.config.experiment import load_experiment
from fedfibos.runs.following import Following
from fedfibos.simulation import simulate

FLEET = """seed = 4
[method]
name = "heterofl"
[federation]
rounds = 5
cohort = 3
"""


def fleet_line(number: int, rejected=None, evaluation=None) -> str:
    record = {
        "round": number,
        "loss": 2.0 / number,
        "participants": [0, 1, 2],
        "capacities": {"0": 1.0, "1": 0.5, "2": 0.5},
        "rejected": rejected or {},
        "bytes": {"down": 1000, "up": 2000},
        "seconds": 60.0,
        **({"evaluation": evaluation} if evaluation else {}),
    }
    return json.dumps(record) + "\n"


@pytest.fixture
def fleet(tmp_path):
    run = tmp_path / "fleet"
    run.mkdir()
    (run / "config.toml").write_text(FLEET)
    evaluation = {
        "global": {"full": 0.9, "submodels": {"1.0": 0.9, "0.5": 0.5, "mean": 0.7}},
        "local": {"mean": None, "by_capacity": {}},
    }
    lines = [
        fleet_line(1, {"1": "no answer within 600 s", "2": "its update has 3 values that are not finite"}),
        fleet_line(2, {"1": "no answer within 30 s"}, evaluation),
    ]
    (run / "rounds.jsonl").write_text("".join(lines))
    return run


def shown(run, width=80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    watch_run(run, True, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_fleet_as_it_is_now(fleet):
    lines = shown(fleet)
    assert lines[0] == "heterofl on a Flower fleet, 3 clients a round, seed 4"
    assert lines[2].startswith(f"round 2 of 5   {duration(120)}   about {duration(180)} left")
    assert lines[3] == "loss 1.0000   down 2.0 kB   up 4.0 kB"
    first = next(place for place, line in enumerate(lines) if line.split()[:1] == ["capacity"])
    rows = {line.split()[0]: line.split()[1:] for line in lines[first : first + 5]}
    assert rows["1"][:2] == ["2", "0"]
    assert rows["0.5"] == ["4", "3", "50.0", "%", "–"]
    assert rows["mean"] == ["6", "3", "70.0", "%", "–"]
    assert rows["whole"] == ["model", "90.0", "%"]
    assert any(line.split() == ["2", *["no", "answer", "within", "N", "s"]] for line in lines)
    assert any("its update has N values that are not finite" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_simulation_is_shown_by_the_seeds_own_cohorts(tmp_path):
    overrides = ("federation.rounds=4", "federation.cohort=5", "evaluation.every=2")
    experiment = load_experiment("experiments/digits/fedfibos.toml", overrides)
    simulate(experiment, tmp_path / "run", workers=1)
    following = Following(tmp_path / "run")
    records = following.read()
    assert following.seen.devices.total() == 20
    assert following.seen.evaluation[0] == 4
    lines = shown(tmp_path / "run")
    assert "round 4 of 4" in lines[2]
    assert lines[2].endswith("finished")
    local = records[-1]["evaluation"]["local"]["mean"]
    assert any(line.split()[:1] == ["mean"] and f"{100 * local:.1f} %" in line for line in lines)


@pytest.mark.parametrize(("on_record", "took"), [("false", "–"), ("true", "4")])
def test_who_of_a_fleet_of_devices_took_part_is_not_said_where_it_is_not_known(tmp_path, on_record, took):
    """Their capacities are known only once the model is built; a 0 would be wrong."""
    devices = 'federation.devices=[{name="a", share=0.5}, {name="b", share=0.5, bytes="40 kB"}]'
    overrides = ("federation.rounds=2", "federation.cohort=2", "local.steps=1", "method.name=heterofl", devices)
    experiment = load_experiment("experiments/digits/fedfibos.toml", [*overrides, f"run.client_records={on_record}"])
    simulate(experiment, tmp_path / "run", workers=1)
    rows = {line.split()[0]: line.split()[1:] for line in shown(tmp_path / "run") if line.split()}
    assert rows["mean"][:2] == [took, "0" if took == "4" else "–"]


def test_it_is_live_until_the_run_is_finished(fleet):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    watching = threading.Thread(target=watch_run, args=(fleet, False, console, 0.01), daemon=True)
    watching.start()
    time.sleep(0.1)
    assert watching.is_alive()
    with (fleet / "rounds.jsonl").open("a") as file:
        file.write("".join(map(fleet_line, (3, 4, 5))))
    (fleet / "final.json").write_text("{}")
    watching.join(timeout=10)
    assert not watching.is_alive()
    assert "round 5 of 5" in console.file.getvalue()


def test_a_round_that_was_skipped_has_no_loss(fleet):
    line = json.loads(fleet_line(3))
    del line["loss"]
    with (fleet / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({**line, "skipped_round": "no usable upload"}) + "\n")
    assert shown(fleet)[3] == "skipped   down 3.0 kB   up 6.0 kB   1 without uploads"


def test_a_run_without_a_round_yet(fleet):
    (fleet / "rounds.jsonl").unlink()
    following = Following(fleet)
    assert following.read() == []
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(screen(following))
    assert "no round yet" in console.file.getvalue()


def test_what_is_no_run_is_one_line_that_names_one(tmp_path, fleet, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for command in (["watch", "--once"], ["evaluate"], ["audit"], ["diagnose"]):
        for name, why in (
            ("nowhere", "it does not exist"),
            ("file", "it is a file"),
            ("empty", "it has no config.toml"),
            (".", f"it has no config.toml; it holds some, such as {fleet}"),
        ):
            path = fleet.parent if name == "." else tmp_path / name
            assert main([*command, str(path)]) == 2
            assert capsys.readouterr().err == f"fedfibos: {path} must be a run directory, {why}\n"


def test_a_run_says_json_lines_on_request(tmp_path, capsys):
    more = ["federation.rounds=2", "--out", str(tmp_path / "run"), "--workers", "1"]
    assert main(["run", "experiments/digits/fedfibos.toml", *more, "--log-format", "json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(event["text"] for event in told if event["event"] == "warning")
    events = [event for event in told if event["event"] != "warning"]
    assert [event["event"] for event in events] == ["start", "round", "round", "finish"]
    rounds = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert {key: value for key, value in events[1].items() if key not in ("time", "event")} == rounds[0]
    assert events[-1]["final"] == json.loads((tmp_path / "run/final.json").read_text())
