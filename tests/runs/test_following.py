"""A run read while it goes on: new rounds only, what they come to, and how long the others will take."""

from __future__ import annotations

import json

import pytest

from fedfibos.runs.following import Following, kind_of

CONFIG = """seed = 4
[method]
name = "heterofl"
[federation]
rounds = 5
cohort = 3
"""


def fleet_line(number: int) -> str:
    record = {
        "round": number,
        "loss": 2.0 / number,
        "participants": [0, 1, 2],
        "capacities": {"0": 1.0, "1": 0.5, "2": 0.5},
        "rejected": {},
        "bytes": {"down": 1000, "up": 2000},
        "seconds": 60.0,
    }
    return json.dumps(record) + "\n"


@pytest.fixture
def fleet(tmp_path):
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "rounds.jsonl").write_text(fleet_line(1) + fleet_line(2))
    return tmp_path


def test_reasons_of_one_kind_are_one():
    assert kind_of("no answer within 600 s") == kind_of("no answer within 0.5 s") == "no answer within N s"
    assert kind_of("its loss is -1.5e-07: wanted 0") == "its loss is N: wanted N"
    assert kind_of("float32 of client7") == "float32 of client7"


def test_half_a_line_waits_and_a_run_that_begins_anew_is_read_anew(fleet):
    following = Following(fleet)
    assert [record["round"] for record in following.read()] == [1, 2]
    whole = fleet_line(3)
    with (fleet / "rounds.jsonl").open("a") as file:
        file.write(whole[:40])
        file.flush()
        assert following.read() == []
        file.write(whole[40:])
    assert [record["round"] for record in following.read()] == [3]
    assert following.seen.devices == {1.0: 3, 0.5: 6}
    (fleet / "rounds.jsonl").write_text(fleet_line(1))
    following.read()
    assert following.seen.rounds == 1
    assert following.seen.down == 1000


def test_time_left_is_by_the_last_rounds(fleet):
    following = Following(fleet)
    assert following.seconds_left() is None
    following.read()
    assert following.seconds_left() == 180.0
    (fleet / "final.json").write_text("{}")
    assert following.seconds_left() is None
    assert following.finished


def test_clients_on_record_say_their_own_capacities(fleet):
    line = json.loads(fleet_line(3))
    del line["capacities"]
    line["clients"] = {"0": {"capacity": 0.25}, "1": {"capacity": 1.0, "rejected": "it failed"}}
    line["rejected"] = {"1": "it failed"}
    (fleet / "rounds.jsonl").write_text(json.dumps({**line, "round": 1}) + "\n")
    following = Following(fleet)
    following.read()
    assert following.seen.devices == {0.25: 1, 1.0: 1}
    assert following.seen.turned_away == {1.0: 1}
    assert following.seen.kinds == {"it failed": 1}
