"""Rounds that ask more devices than they need: who counts, who is told that it did not, what is on record."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from local_grid import Deployment, LocalGrid, experiment_of, lines_of, server_context

from fedfibos.common.validation import ExperimentError, checked
from fedfibos.config.growth import cohort_in
from fedfibos.flower import client_app, server_app
from fedfibos.flower.messages import note_in
from fedfibos.flower.oversampled import Draw
from fedfibos.flower.task import FleetSettings

SLOW = (1, 4)


def fleet(tmp_path, *overrides, cohort=4, rounds=1, extra=2, **federation):
    short = (f"federation.cohort={cohort}", f"federation.rounds={rounds}", "evaluation.every=99", "local.steps=1")
    experiment = experiment_of(tmp_path, *short, *overrides)
    return Deployment(experiment, wait=0.01, extra=extra, **federation)


def train_messages(grid, deployment, client):
    (number,) = [n for n, node in deployment.nodes.items() if node.config["client-id"] == client]
    return [m for m in grid.asked if m.metadata.message_type == "train" and m.metadata.dst_node_id == number]


def run_on_grid(deployment, out, **config):
    config = {"run-dir": str(out), **config}
    grid = LocalGrid(deployment.nodes, config)
    server_app(lambda config: deployment.task)(grid, server_context(config))
    return grid


def test_the_first_usable_uploads_count_and_the_slow_are_dropped(tmp_path):
    deployment = fleet(tmp_path)
    for client in SLOW:
        deployment.node(client).seconds = 30.0
    final = deployment.run(tmp_path / "run")
    (line,) = lines_of(tmp_path / "run")
    assert line["participants"] == [0, 2, 3, 5]
    assert line["rejected"] == {}
    assert line["dropped"] == {str(n): "it had not answered when 4 uploads had counted" for n in SLOW}
    assert line["bytes_by_client"]["1"]["down"] > 0
    assert line["bytes_by_client"]["1"]["up"] == 0
    others = fleet(tmp_path, cohort=6, extra=0)
    for client in SLOW:
        others.node(client).tamper = lambda asked, reply: [] if asked.metadata.message_type == "train" else [reply]
    without = others.run(tmp_path / "without")
    assert final["params_sha256"] == without["params_sha256"], "who counted gives the parameters"


def test_a_late_upload_comes_a_round_later_and_its_device_is_told(tmp_path):
    deployment = fleet(tmp_path, rounds=4)
    for node in deployment.nodes.values():
        node.seconds = 1.0
    deployment.node(1).seconds = 2.0
    grid = run_on_grid(deployment, tmp_path / "run")
    first, second, third, _ = lines_of(tmp_path / "run")
    assert first["participants"] == [0, 2, 3, 4]
    assert first["dropped"] == {
        "1": "it had not answered when 4 uploads had counted",
        "5": "4 uploads had counted before its own came",
    }
    assert second["left_out"] == {"1": "still at work on round 1"}
    assert third["late"] == {"1": "its answer to round 1 came when that round was over: not used"}
    asked = train_messages(grid, deployment, 1)
    assert [note_in(message) for message in asked[:2]] == [
        None,
        "this device's work of round 1 was not used: it had not answered when 4 uploads had counted",
    ]


def test_a_device_is_told_after_a_resumption_too(tmp_path):
    deployment = fleet(tmp_path)
    deployment.node(1).seconds = 30.0
    deployment.run(tmp_path / "run")
    experiment = experiment_of(
        tmp_path, "federation.cohort=4", "federation.rounds=2", "evaluation.every=99", "local.steps=1"
    )
    deployment.task = Deployment(experiment, wait=0.01, extra=2).task
    grid = run_on_grid(deployment, tmp_path / "run", resume=True)
    (message,) = train_messages(grid, deployment, 1)
    assert note_in(message).startswith("this device's work of round 1 was not used: it had not answered")


def test_more_extra_than_there_are_devices(tmp_path):
    deployment = fleet(tmp_path, extra=1000)
    deployment.run(tmp_path / "run")
    (line,) = lines_of(tmp_path / "run")
    assert line["participants"] == [0, 1, 2, 3]
    assert line["dropped"] == {str(n): "4 uploads had counted before its own came" for n in (4, 5)}


def test_devices_that_refuse_are_recorded_and_not_waited_for(tmp_path):
    """The vetoes fill none of the cohort's places, and no deadline passes for them."""
    deployment = fleet(tmp_path)
    veto = client_app(lambda config: deployment.task, deployment.data, lambda context: "battery at 9 %")
    always = deployment.node(0).app

    def refuses_in_rounds(message, context):
        return (veto if message.metadata.message_type == "train" else always)(message, context)

    for client in (0, 1):
        deployment.node(client).app = refuses_in_rounds
    for client in SLOW:
        deployment.node(client).seconds = 3.0
    deployment.run(tmp_path / "run")
    (line,) = lines_of(tmp_path / "run")
    assert line["rejected"] == {n: "it is not available now: battery at 9 %" for n in ("0", "1")}
    assert line["participants"] == [0, 1, 2, 3, 4, 5]
    assert line["dropped"] == {}


def test_a_veto_at_the_first_contact_keeps_nobody_waiting(tmp_path, monkeypatch):
    deployment = fleet(tmp_path, cohort=6, extra=0)
    deployment.task = replace(deployment.task, federation=replace(deployment.task.federation, wait=1000.0))
    veto = client_app(lambda config: deployment.task, deployment.data, lambda context: "on a metered connection")
    deployment.node(3).app = veto
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("the round waits"))
    deployment.run(tmp_path / "run")
    (line,) = lines_of(tmp_path / "run")
    assert line["participants"] == [0, 1, 2, 4, 5]
    assert list(line["refused"].values()) == ["it is not available now: on a metered connection"]


def draw(wanted, faults, answers):
    """Who counts of clients 0..4 whose answers come in those batches."""
    asked = {f"m{n}": n for n in range(5)}
    taken = Draw(wanted, asked, lambda client, reply: faults.get(client))
    done = [taken.enough([reply_to(n) for n in batch]) for batch in answers]
    return taken, done


def reply_to(client):
    class Reply:
        class metadata:
            reply_to_message_id = f"m{client}"

    return Reply


def test_of_answers_that_come_together_those_of_the_first_clients_count():
    taken, done = draw(2, {}, [[4, 3, 0]])
    assert done == [True]
    assert taken.counted == {0, 3}
    assert taken.dropped == {
        4: "2 uploads had counted before its own came",
        1: "it had not answered when 2 uploads had counted",
        2: "it had not answered when 2 uploads had counted",
    }


def test_an_unusable_upload_and_a_double_one_fill_no_place():
    taken, done = draw(2, {0: "its update has 1 values that are not finite"}, [[0, 1, 1], [2], [3]])
    assert done == [False, False, True]
    assert taken.counted == {2, 3}
    assert taken.rejected == {0: "its update has 1 values that are not finite", 1: "it answered 2 times"}
    assert list(taken.dropped) == [4]


def test_without_extra_nothing_is_looked_at_before_the_merge():
    taken, done = draw(5, {0: "a fault"}, [[0, 1, 2, 3], [4]])
    assert done == [False, False]
    assert (taken.counted, taken.rejected, taken.dropped) == (set(), {}, {})


def test_a_double_upload_is_rejected_on_record(tmp_path):
    deployment = fleet(tmp_path)
    deployment.node(0).tamper = lambda asked, reply: [reply] * (1 + (asked.metadata.message_type == "train"))
    deployment.run(tmp_path / "run")
    (line,) = lines_of(tmp_path / "run")
    assert line["rejected"] == {"0": "it answered 2 times"}
    assert line["participants"] == [0, 1, 2, 3, 4]
    assert list(line["dropped"]) == ["5"]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"extra": -1}, "federation.extra must be at least 0, got -1"),
        (
            {"extra": 2, "scores": "client"},
            "federation: extra must be 0 with scores = 'client': every device is asked for its mask before it trains, "
            "got 2",
        ),
        ({"deadline": 0.0}, "federation.deadline must be above 0.0, got 0"),
        ({"grow_from": 2}, "federation: grow_from needs grow_over beside it: cohort grows from grow_from over"),
        ({"grow_over": 2}, "federation: grow_over needs grow_from beside it"),
        ({"grow_from": 9, "grow_over": 2}, "federation: grow_from must be at most cohort, 4, got 9"),
        ({"grow_from": 0, "grow_over": 2}, "federation.grow_from must be at least 1, got 0"),
        (
            {"grow_from": 2, "grow_over": 2, "min_participants": 3},
            "federation.min_participants must be at most grow_from, 2, got 3",
        ),
    ],
)
def test_settings_that_cannot_be(settings, line):
    with pytest.raises(ExperimentError) as error:
        checked(FleetSettings, {"rounds": 3, "cohort": 4, **settings}, "federation")
    assert str(error.value).startswith(line)


def test_a_cohort_grows_over_flower_and_goes_on_growing_after_a_resumption(tmp_path):
    deployment = fleet(tmp_path, cohort=6, rounds=2, extra=0, grow_from=2, grow_over=4)
    deployment.run(tmp_path / "run")
    experiment = experiment_of(
        tmp_path, "federation.cohort=6", "federation.rounds=6", "evaluation.every=99", "local.steps=1"
    )
    deployment.task = Deployment(experiment, wait=0.01, grow_from=2, grow_over=4).task
    deployment.run(tmp_path / "run", resume=True)
    sizes = [len(line["participants"]) for line in lines_of(tmp_path / "run")]
    assert sizes == [2, 3, 4, 5, 6, 6] == [cohort_in(t, 6, 2, 4) for t in range(6)]
