"""The lines of rounds.jsonl: appended, cut back, named where they are damaged."""

import json

import pytest
from run_lines import line

from fedfibos.config.experiment import to_toml
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory


def test_rounds_are_appended_and_cut_back(tmp_path, experiment):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    for number in (1, 2, 3):
        directory.append_round(line(number))
        assert len((directory.path / "rounds.jsonl").read_text().splitlines()) == number
    directory.finish({"rounds": 3})
    assert json.loads((directory.path / "final.json").read_text()) == {"rounds": 3}
    again = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=True)
    assert again.rounds() == [line(1), line(2), line(3)]
    again.go_on(2, to_toml(experiment))
    assert again.rounds() == [line(1), line(2)]
    assert not (directory.path / "final.json").exists()  # its numbers are no longer those of the record
    again.append_round(line(3))
    assert again.rounds() == [line(1), line(2), line(3)]
    files = [".lock", "config.toml", "environment.json", "rounds.jsonl"]
    assert sorted(path.name for path in directory.path.iterdir()) == files


def test_half_a_line_that_a_kill_left_is_cut_off(tmp_path, experiment):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    directory.append_round(line(1))
    with (directory.path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "lo')
    again = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=True)
    assert again.rounds() == [line(1)]
    again.append_round(line(2))
    assert again.rounds() == [line(1), line(2)]


def test_a_damaged_line_is_named(tmp_path, experiment):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    path = directory.path / "rounds.jsonl"
    path.write_text(json.dumps(line(1)) + "\n{nonsense\n" + json.dumps(line(3)) + "\n")
    with pytest.raises(RecordError, match=r"rounds\.jsonl: line 2 is damaged"):
        directory.rounds()
    path.write_text(json.dumps(line(1)) + "\n" + json.dumps(line(3)) + "\n")
    with pytest.raises(RecordError, match="line 2 must be the object of round 2"):
        directory.rounds()


def test_fewer_rounds_than_the_checkpoint_knows_of(tmp_path, experiment):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    directory.append_round(line(1))
    with pytest.raises(RecordError, match="the checkpoint is of round 2, got only 1 rounds on record"):
        directory.go_on(2, to_toml(experiment))
