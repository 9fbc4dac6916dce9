"""A run that nobody watches: rounds without uploads, clients that hang or fail for ever, a number that two claim."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from local_grid import Deployment, LocalGrid, experiment_of, lines_of, server_context

from fedfibos.flower import client_app, server_app
from fedfibos.round import NoUploadError

BAD = 2


def everyone(tmp_path, *overrides):
    short = ("federation.cohort=6", "federation.rounds=3", "evaluation.every=99", "local.steps=1")
    return experiment_of(tmp_path, *short, *overrides)


def silent_in_training(times):
    """No node answers when asked to train, the first so many times in all."""
    asked = []

    def tamper(message, reply):
        if message.metadata.message_type != "train":
            return [reply]
        asked.append(message)
        return [] if len(asked) <= times else [reply]

    return tamper


def test_rounds_without_an_upload_are_tried_again_and_counted(tmp_path, caplog):
    whole = Deployment(everyone(tmp_path, "federation.rounds=2")).run(tmp_path / "whole")
    deployment = Deployment(everyone(tmp_path, "federation.rounds=2"), wait=0.01)
    tamper = silent_in_training(12)  # the first round's six clients, twice
    for node in deployment.nodes.values():
        node.tamper = tamper
    final = deployment.run(tmp_path / "run")
    assert final["params_sha256"] == whole["params_sha256"], "the parameters of a run in which it did not happen"
    first, second = lines_of(tmp_path / "run")
    assert [tried["reason"] for tried in first["skipped"]] == [
        "no usable upload in the round: client 0, 1, 2, 3, 4, 5: no answer within 600 s"
    ] * 2
    assert first["skipped"][0]["participants"] == [0, 1, 2, 3, 4, 5]
    assert first["skipped"][0]["rejected"] == {str(n): "no answer within 600 s" for n in range(6)}
    assert first["skipped"][0]["bytes"]["down"] > 0
    assert "skipped" not in second
    assert "round 1 is tried again in 0.01 s (2 of 10)" in caplog.text


def test_the_run_stops_after_patience_rounds_in_turn(tmp_path):
    deployment = Deployment(everyone(tmp_path), wait=0.01, patience=3)
    for node in deployment.nodes.values():
        node.tamper = lambda message, reply: [reply] if message.metadata.message_type != "train" else []
    with pytest.raises(NoUploadError, match=r"round 1: no usable upload .* no answer within 600 s \(3 times in turn\)"):
        deployment.run(tmp_path / "run")


def test_patience_is_for_rounds_in_turn(tmp_path):
    """One bad round before each good one, with patience for one."""
    deployment = Deployment(everyone(tmp_path), wait=0.01, patience=2)
    asked = []

    def every_other(message, reply):
        if message.metadata.message_type != "train":
            return [reply]
        asked.append(message)
        return [] if (len(asked) - 1) // 6 % 2 == 0 else [reply]

    for node in deployment.nodes.values():
        node.tamper = every_other
    deployment.run(tmp_path / "run")
    assert [len(line["skipped"]) for line in lines_of(tmp_path / "run")] == [1, 1, 1]


def test_too_few_connected_are_waited_for(tmp_path, monkeypatch):
    deployment = Deployment(everyone(tmp_path), wait=0.01, min_participants=6)
    away, asked = deployment.nodes.copy(), []
    late = next(iter(away))
    node = deployment.nodes.pop(late)

    def comes_back(seconds):
        asked.append(seconds)
        if len(asked) == 5:
            deployment.nodes[late] = node

    monkeypatch.setattr(time, "sleep", comes_back)
    deployment.run(tmp_path / "run")
    first, *_ = lines_of(tmp_path / "run")
    assert first["participants"] == [0, 1, 2, 3, 4, 5]
    assert first["skipped"][0]["reason"].startswith("6 clients must be connected, got 5 within 0.01 s")


def test_the_next_attempt_asks_others_where_there_are_enough(tmp_path):
    deployment = Deployment(everyone(tmp_path, "federation.cohort=2"), wait=0.01)
    tamper = silent_in_training(2)
    for node in deployment.nodes.values():
        node.tamper = tamper
    deployment.run(tmp_path / "run")
    first = lines_of(tmp_path / "run")[0]
    assert not set(first["participants"]) & set(first["skipped"][0]["participants"])


def test_a_client_that_always_fails_is_left_out_and_named(tmp_path, caplog):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=7"), wait=0.01)
    deployment.node(BAD).tamper = lambda m, reply: [reply] if m.metadata.message_type != "train" else []
    deployment.run(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [BAD in line["participants"] for line in lines] == [True, True, True, False, True, False, False]
    why = "until round 4: it failed 3 times in the same way: no answer within 600 s"
    assert [line.get("left_out") for line in lines[:5]] == [None, None, None, {str(BAD): why}, None]
    assert "client 2 is left out until round 7: it failed 4 times in the same way" in caplog.text


def test_who_is_left_out_is_known_again_after_a_resumption(tmp_path):
    results = []
    for rounds in ((7,), (4, 7)):
        out = tmp_path / str(len(rounds))
        for number in rounds:
            deployment = Deployment(everyone(tmp_path, f"federation.rounds={number}"), wait=0.01)
            deployment.node(BAD).tamper = lambda m, reply: [reply] if m.metadata.message_type != "train" else []
            final = deployment.run(out, resume=number == 7 and len(rounds) == 2)
        results.append((final["params_sha256"], [line["participants"] for line in lines_of(out)]))
    assert results[0] == results[1]


def test_nobody_is_left_out_where_too_few_would_be_left(tmp_path):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=4"), wait=0.01, min_participants=5, patience=2)
    for client in (1, BAD):
        calls = []

        def four_times(message, reply, calls=calls, client=client):
            if message.metadata.message_type != "train":
                return [reply]
            calls.append(message)
            return [] if client == BAD or len(calls) > 3 else [reply]

        deployment.node(client).tamper = four_times
    with pytest.raises(NoUploadError, match=r"round 4: 5 usable uploads are wanted, got 4"):
        deployment.run(tmp_path / "run")
    assert len(lines_of(tmp_path / "run")) == 3


@pytest.mark.parametrize("where", ["declaring", "training"])
def test_a_client_that_hangs_is_free_for_the_next_message(tmp_path, where):
    """``sleep`` in ``data()``: the app ends by itself after the deadline, and says where it was."""
    deployment = Deployment(everyone(tmp_path, "federation.rounds=2"), wait=0.01, deadline=0.5)
    node, world, hung = deployment.node(BAD), deployment.node(BAD).app, []

    def data(context):
        hung.append(len(hung))
        if len(hung) == (1 if where == "declaring" else 2):
            time.sleep(3600)
        return deployment.data(context)

    node.app = client_app(lambda config: deployment.task, data)
    assert world is not node.app
    deployment.run(tmp_path / "run")
    first, second = lines_of(tmp_path / "run")
    place = first["refused"].values() if where == "declaring" else first["rejected"].values()
    (reason,) = place
    assert reason.startswith("it was not done within 0.5 s: stopped in data, test_attempts.py line ")
    assert BAD in second["participants"]
    assert second["rejected"] == {}


def test_a_device_may_decline_and_is_not_left_out_for_it(tmp_path):
    """Its own veto, in a round and as it joins; data and training are not touched."""
    deployment = Deployment(everyone(tmp_path, "federation.rounds=6"), wait=0.01)
    asked = []

    def available(context):
        asked.append(context.node_config["client-id"])
        return "battery at 9 %" if 2 <= len(asked) <= 9 else True

    deployment.node(BAD).app = client_app(lambda config: deployment.task, deployment.data, available)
    deployment.run(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert lines[0]["rejected"] == {str(BAD): "it is not available now: battery at 9 %"}
    assert list(lines[1]["refused"].values()) == ["it is not available now: battery at 9 %"]
    assert all("left_out" not in line for line in lines)
    assert set(asked) == {BAD}


def test_declining_round_after_round_is_no_failure(tmp_path):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=5"), wait=0.01)
    calls = []

    def available(context):
        calls.append(context)
        return len(calls) % 2 == 1  # says who it is, and then does not train

    deployment.node(BAD).app = client_app(lambda config: deployment.task, deployment.data, available)
    deployment.run(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [line["rejected"] for line in lines] == [{str(BAD): "it is not available now"}] * 5


def test_data_that_cannot_be_trained_on_are_found_before_a_round(tmp_path, caplog):
    deployment = Deployment(everyone(tmp_path), wait=0.01)

    class Wrong:
        def __init__(self, data, spoil, classes=0):
            self.data, self.spoil, self.labels = data, spoil, data.labels + classes

        def __len__(self):
            return len(self.data)

        def batch(self, positions, generator=None):
            return self.spoil(self.data.batch(positions, generator))

        def subset(self, positions):
            raise AssertionError("a client takes all its examples")

    def gone(inputs):
        raise OSError("disk gone")

    faults = {
        1: (lambda inputs: inputs * torch.nan, "its data: 240 of 240 examples hold nan"),
        BAD: (
            lambda inputs: inputs[:, :, :4, :4].reshape(-1, 16),
            "a first step on its examples fails: the model fails on the data (RuntimeError: Expected 3D",
        ),
        3: (gone, "OSError: disk gone (examples 0 to 238 cannot be made a batch)"),
    }
    for client, (spoil, _) in faults.items():
        deployment.node(client).app = client_app(
            lambda config: deployment.task, lambda context, spoil=spoil: Wrong(deployment.data(context), spoil)
        )
    deployment.run(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [line["participants"] for line in lines] == [[0, 4, 5]] * 3
    assert all(line["rejected"] == {} for line in lines)
    assert len(lines[0]["refused"]) == 3
    for _, reason in faults.values():
        assert any(reason in said for said in lines[0]["refused"].values())


def test_a_second_node_of_a_number_is_refused_while_the_first_is_there(tmp_path, caplog):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=4"), wait=0.01)
    (first,) = [n for n, node in deployment.nodes.items() if node.config["client-id"] == BAD]
    deployment.nodes[10**6] = replace(deployment.nodes[first])
    asked = []

    def leaves(message, reply):
        asked.append(message.metadata.message_type)
        if len(asked) == 3:  # query, train, train
            del deployment.nodes[first]
        return [reply]

    deployment.nodes[first].tamper = leaves
    deployment.run(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    why = f"client {BAD} is node {first}, which is connected: give each device a client-id of its own"
    assert [line.get("refused") for line in lines] == [{"node 1000000": why}] * 2 + [None, None]
    assert [line["participants"] for line in lines] == [[0, 1, 2, 3, 4, 5]] * 4, "then the number is free"
    assert caplog.text.count("node 1000000 takes no part") == 1
    assert f"this device takes no part so far: {why}" in caplog.text, "in the log of the device"


class KeyedGrid(LocalGrid):
    """A grid that tells its nodes' keys, as Flower's over HTTP does."""

    keys: dict[int, bytes]

    def get_nodes(self):
        return [SimpleNamespace(node_id=node, public_key=self.keys.get(node, b"")) for node in self.get_node_ids()]


def run_keyed(deployment, out, keys, **config):
    grid = KeyedGrid(deployment.nodes, {"run-dir": str(out), **config})
    grid.keys = keys
    server_app(lambda config: deployment.task)(grid, server_context(grid.run_config))


def test_a_number_belongs_to_the_key_of_the_first_node_that_declared_it(tmp_path):
    """Also when that node is away, and after a resumption; a node number of Flower's that changes is no other key."""
    deployment = Deployment(everyone(tmp_path, "federation.rounds=2"), wait=0.01, bind_keys=True)
    (number,) = [n for n, node in deployment.nodes.items() if node.config["client-id"] == BAD]
    keys = {node: b"key %d" % node for node in deployment.nodes}
    run_keyed(deployment, tmp_path / "run", keys)
    fingerprint = lines_of(tmp_path / "run")[0]["keys"][str(BAD)]
    assert len(lines_of(tmp_path / "run")[0]["keys"]) == 6

    deployment.nodes[10**6] = deployment.nodes.pop(number)
    deployment.task = Deployment(everyone(tmp_path, "federation.rounds=3"), wait=0.01, bind_keys=True).task
    run_keyed(deployment, tmp_path / "run", {**keys, 10**6: b"a stranger's"}, resume=True)
    line = lines_of(tmp_path / "run")[2]
    assert BAD not in line["participants"]
    (why,) = line["refused"].values()
    assert why.startswith(f"client {BAD} belongs to the key {fingerprint}, not to ")

    deployment.task = Deployment(everyone(tmp_path, "federation.rounds=4"), wait=0.01, bind_keys=True).task
    run_keyed(deployment, tmp_path / "run", {**keys, 10**6: keys[number]}, resume=True)
    assert BAD in lines_of(tmp_path / "run")[3]["participants"]
