"""Damaged files of a record are named."""

from __future__ import annotations

import re

import pytest
from run_lines import FINAL, LINE

from fedfibos.report.records import read_record
from fedfibos.runs.made import latest_environment
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory


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
