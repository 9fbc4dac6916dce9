"""Damaged files of a record: one line that names the file, or what comes after the checkpoint does not matter."""

from __future__ import annotations

import json
import re

import pytest

from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.report.records import read_record
from fedfibos.runs.made import latest_environment
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory

EVALUATION = {
    "global": {"full": 0.5, "submodels": {"1.0": 0.5, "mean": 0.5}},
    "local": {"mean": 0.5, "by_capacity": {"1.0": 0.5}},
    "jaccard": {"1.0": 1.0},
    "kept_shares": {},
    "cv_f": None,
    "cv_magnitude": 0.5,
}
LINE = {
    "round": 1,
    "loss": 1.0,
    "bytes": {"down": 10, "up": 3},
    "seconds": 0.5,
    "rejected": {},
    "evaluation": EVALUATION,
}
CURVE = {"last": 0.5, "last20": 0.5, "best": 0.5}
FINAL = {
    "method": "fedfibos",
    "seed": 0,
    "rounds": 1,
    "params_sha256": "00",
    "global_accuracy": {"full": CURVE, "submodels": {"1.0": CURVE, "mean": CURVE}},
    "local_accuracy": {"mean": CURVE, "by_capacity": {"1.0": CURVE}},
    "bytes": {"down": 10, "up": 3},
    "seconds": 0.5,
    "rejected": 0,
}


@pytest.fixture
def config(tmp_path) -> str:
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[model]\nname = "mlp"\n[federation]\nclients = 10\ncohort = 5\nrounds = 1\n[method]\nname = "fedavg"\n'
    )
    return to_toml(load_experiment(path))


@pytest.fixture
def run(tmp_path, config):
    directory = RunDirectory.open(tmp_path / "run", config)
    directory.append_round(LINE)
    directory.finish(FINAL)
    return directory.path


def test_the_record_is_sound(run):
    assert read_record(run).final == FINAL


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"7", b'"text"', b"{}", b'{"a": ', b"\xff", b"[" * 100_000, b'{"seed": NaN}']
)
@pytest.mark.parametrize("name", ["environment.json", "final.json", "rounds.jsonl"])
def test_a_file_that_is_not_what_it_should_be_is_named(run, name, content):
    (run / name).write_bytes(content + b"\n" * (name == "rounds.jsonl"))
    with pytest.raises(RecordError, match=re.escape(str(run / name))) as caught:
        read_record(run)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(run))


WRONG = [
    ("environment.json", ("cpu",), None),
    ("environment.json", ("cores",), "2"),
    ("environment.json", ("resumed",), {}),
    ("environment.json", ("resumed",), [None]),
    ("environment.json", ("own",), ["a"]),
    ("environment.json", ("dealt_sha256",), 5),
    ("final.json", ("seed",), "0"),
    ("final.json", ("seed",), True),
    ("final.json", ("rounds",), 1.5),
    ("final.json", ("rounds",), -1),
    ("final.json", ("params_sha256",), None),
    ("final.json", ("global_accuracy",), []),
    ("final.json", ("global_accuracy", "full"), 0.5),
    ("final.json", ("global_accuracy", "full", "last"), "0.5"),
    ("final.json", ("global_accuracy", "submodels"), {}),
    ("final.json", ("global_accuracy", "submodels", "mean"), {}),
    ("final.json", ("local_accuracy", "by_capacity"), None),
    ("final.json", ("local_accuracy", "adjusted"), 1),
    ("final.json", ("bytes", "up"), 0.5),
    ("final.json", ("silent",), "none"),
    ("rounds.jsonl", ("round",), "1"),
    ("rounds.jsonl", ("round",), 2),
    ("rounds.jsonl", ("loss",), None),
    ("rounds.jsonl", ("rejected",), []),
    ("rounds.jsonl", ("rejected",), {"3": None}),
    ("rounds.jsonl", ("bytes",), 13),
    ("rounds.jsonl", ("bytes", "down"), -1),
    ("rounds.jsonl", ("seconds",), "fast"),
    ("rounds.jsonl", ("participants",), "all"),
    ("rounds.jsonl", ("participants",), ["1"]),
    ("rounds.jsonl", ("evaluation",), None),
    ("rounds.jsonl", ("evaluation", "global"), {}),
    ("rounds.jsonl", ("evaluation", "global", "full"), []),
    ("rounds.jsonl", ("evaluation", "local", "mean"), "high"),
    ("rounds.jsonl", ("evaluation", "jaccard"), None),
    ("rounds.jsonl", ("evaluation", "cv_f"), "0"),
]


@pytest.mark.parametrize(("name", "keys", "value"), WRONG, ids=lambda value: str(value))
def test_a_value_of_another_kind_is_named(run, name, keys, value):
    content = json.loads((run / name).read_text())
    table = content
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] = value
    (run / name).write_text(json.dumps(content) + "\n")
    with pytest.raises(RecordError, match=re.escape(str(run / name))) as caught:
        read_record(run)
    assert keys[-1] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"cpu": 1}', b'{"resumed": []}', b"\x00"])
def test_a_damaged_environment_is_named_where_a_run_is_gone_on_with(run, config, content):
    (run / "environment.json").write_bytes(content)
    (run / "final.json").unlink()
    for read in (lambda: RunDirectory.open(run, config, resume=True), lambda: latest_environment(run)):
        with pytest.raises(RecordError, match=r"environment\.json is damaged: ") as caught:
            read()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"seed = \n", b"\xff\xfe", b"seed = 0\n", b"[]", b"x = " + b"[" * 3000 + b"]" * 3000]
)
def test_a_damaged_configuration_is_named_where_a_run_is_gone_on_with(run, config, content):
    (run / "config.toml").write_bytes(content)
    for resume in (False, True):
        with pytest.raises(RecordError, match=re.escape(str(run))) as caught:
            RunDirectory.open(run, config, resume=resume)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage", [b"{nonsense\n", b"[]\n", b"null\n", b"\xff\n", b'{"round": 7}\n', b"[" * 100_000 + b"\n"]
)
def test_damage_after_the_checkpoint_is_dropped(tmp_path, config, damage):
    """Those rounds are run again."""
    config = config.replace("rounds = 1", "rounds = 4")
    directory = RunDirectory.open(tmp_path / "run", config)
    lines = [{**LINE, "round": number} for number in (1, 2, 3)]
    for line in lines:
        directory.append_round(line)
    path = directory.path / "rounds.jsonl"
    sound = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(sound[0] + sound[1] + damage + sound[2])
    directory.go_on(2, config)
    assert path.read_bytes() == sound[0] + sound[1]
    path.write_bytes(sound[0] + damage + sound[1] + sound[2])
    with pytest.raises(RecordError, match=r"rounds\.jsonl: line 2 "):
        directory.go_on(2, config)
    directory.go_on(1, config)
    assert directory.rounds() == lines[:1]
