"""A run that has lost a whole capacity says so: in its result, in its last line, by its exit code."""

from __future__ import annotations

import json

import pytest

from fedfibos.cli.app import main
from fedfibos.runs.classes import rejected_classes, rejected_lines

HALVES = {0: 1.0, 1: 0.5, 2: 0.5, 3: 0.25}


def line(*participants, rejected=(), silent=None):
    record = {"participants": list(participants), "rejected": {str(n): f"reason of {n}" for n in rejected}}
    return record if silent is None else {**record, "silent": list(silent)}


def lost(*lines):
    return rejected_classes(lines, lambda record: [(n, HALVES[n]) for n in record["participants"]])


def test_a_class_is_lost_after_three_rounds_in_a_row_of_those_it_took_part_in():
    gone = line(0, 1, 2, rejected=(1, 2))
    assert lost(gone, gone) == {}
    assert lost(gone, gone, line(0, 1, 2, rejected=(1,)), gone, gone) == {}
    assert lost(gone, gone, line(0, 3), gone) == {"0.5": {"rounds": 3, "of": 3, "reason": "reason of 1"}}
    alone = line(0, 2, 3, rejected=(2, 3))
    assert lost(line(1, 2), alone, alone, alone, line(0, 3)) == {
        "0.5": {"rounds": 3, "of": 4, "reason": "reason of 2"},
        "0.25": {"rounds": 3, "of": 4, "reason": "reason of 3"},
    }


def test_a_client_that_never_answers_by_design_did_not_take_part():
    assert lost(*[line(0, 1, 2, rejected=(1,), silent=(2,))] * 3)["0.5"] == {
        "rounds": 3,
        "of": 3,
        "reason": "reason of 1",
    }
    assert lost(*[line(0, 1, 2, silent=(1, 2))] * 3) == {}


def test_a_line_for_each():
    assert rejected_lines({}) == []
    assert rejected_lines({"rejected_classes": {"0.5": {"rounds": 3, "of": 4, "reason": "it is so"}}}) == [
        "capacity 0.5: all its clients were rejected in 3 of the 4 rounds that it took part in (it is so)"
    ]


@pytest.fixture
def experiment(experiment_file, tmp_path, monkeypatch):
    (tmp_path / "loses_a_class.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedfibos.local import LocalTrainingError\n"
        "from fedfibos.methods import FedAvg\n"
        "@dataclass(frozen=True)\n"
        "class Loses(FedAvg):\n"
        "    def train(self, model, params, submodel, client):\n"
        "        if client.capacity < 1.0 and client.round > 0:\n"
        "            raise LocalTrainingError('it is too small')\n"
        "        return super().train(model, params, submodel, client)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    experiment_file('method.name = "loses_a_class:Loses"\nfederation = { clients = 4, cohort = 4, rounds = 4 }')
    (tmp_path / "study.toml").write_text('base = "experiment.toml"\nseeds = [0]\n')
    return tmp_path


MESSAGE = "capacity 0.5: all its clients were rejected in 3 of the 4 rounds that it took part in (it is too small)"


def test_a_run_ends_with_a_line_and_a_code_of_its_own(experiment, capsys):
    arguments = [str(experiment / "experiment.toml"), "--out", str(experiment / "run"), "--workers", "1"]
    assert main(["run", *arguments]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == MESSAGE
    final = json.loads((experiment / "run" / "final.json").read_text())
    assert final["rejected_classes"] == {"0.5": {"rounds": 3, "of": 4, "reason": "it is too small"}}
    assert final["rejected"] == 6
    assert main(["run", *arguments, "--resume", "federation.rounds=4"]) == 3  # it is finished, and says so again
    assert main(["run", *arguments[:1], "--out", str(experiment / "two"), "federation.rounds=3", "--workers", "1"]) == 0
    assert "rejected_classes" not in json.loads((experiment / "two" / "final.json").read_text())


def test_a_sweep_says_which_run(experiment, capsys):
    arguments = [str(experiment / "study.toml"), "--out", str(experiment / "runs"), "--workers", "1"]
    assert main(["sweep", *arguments]) == 3
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"seed-0: {MESSAGE}")
