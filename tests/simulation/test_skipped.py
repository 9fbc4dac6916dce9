"""A round without a usable upload is skipped, counted and recorded; only so many in turn stop a run."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace

import pytest

from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment
from fedfibos.data import load
from fedfibos.methods.fedavg import FedAvg
from fedfibos.round import NoUploadError
from fedfibos.simulation import Interrupted, engine, simulate, world


@pytest.fixture
def toml(experiment_file):
    return experiment_file("""
        federation = { cohort = 3, rounds = 8, patience = 3 }
        evaluation.every = 4
        run.checkpoint_every = 2
    """)


def run(toml, out, *overrides, **options):
    return simulate(load_experiment(toml, overrides), out, **{"workers": 1, **options})


def lines(out):
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


class Broken:
    """Examples that give NaN in training, at the rounds whose numbers are given, from 1."""

    rounds = frozenset()
    now = 0

    def __init__(self, wrapped):
        self.wrapped, self.labels = wrapped, wrapped.labels

    def __len__(self):
        return len(self.wrapped)

    def batch(self, indices, augment=None):
        bad = augment is not None and Broken.now in Broken.rounds
        return self.wrapped.batch(indices, augment) * (float("nan") if bad else 1.0)

    def subset(self, indices):
        return Broken(self.wrapped.subset(indices))


@pytest.fixture
def break_rounds(monkeypatch):
    """Make those rounds bring nothing; the clients of each are really trained on NaN."""

    def loaded(name, folder, *args, **kwargs):
        split = load(name, folder, *args, **kwargs)
        return replace(split, train=Broken(split.train))

    def a_round(method, model, state, params, cohort, *more, **options):
        Broken.now = cohort[0].round + 1
        return honest(method, model, state, params, cohort, *more, **options)

    honest = engine.federated_round
    monkeypatch.setattr(world, "load", loaded)
    monkeypatch.setattr(engine, "federated_round", a_round)

    def these(*rounds):
        monkeypatch.setattr(Broken, "rounds", frozenset(rounds))

    return these


def test_rounds_without_an_upload_are_skipped_and_recorded(toml, tmp_path, break_rounds):
    break_rounds(2, 3, 5)
    warnings = []
    final = run(toml, tmp_path / "run", on_warning=warnings.append)
    assert (final["rounds"], final["skipped_rounds"], final["rejected"]) == (8, [2, 3, 5], 9)
    by_round = lines(tmp_path / "run")
    assert [n for n, line in enumerate(by_round, 1) if "loss" not in line] == [2, 3, 5]
    second = by_round[1]
    assert second["skipped_round"].startswith("no usable upload in the round: client ")
    assert len(second["participants"]) == len(second["rejected"]) == 3
    assert second["bytes"]["down"] > 0
    told = [line for line in warnings if "skipped" in line]
    assert [line.partition(": no usable upload")[0] for line in told] == [
        "round 2 is skipped (1 of 3 in turn)",
        "round 3 is skipped (2 of 3 in turn)",
        "round 5 is skipped (1 of 3 in turn)",
    ]
    assert "rejected_classes" not in final


def test_a_skipped_round_leaves_everything_as_it_was(toml, tmp_path, break_rounds):
    break_rounds(4)
    three = run(toml, tmp_path / "three", "federation.rounds=3")
    four = run(toml, tmp_path / "four", "federation.rounds=4")
    assert three["params_sha256"] == four["params_sha256"]
    assert lines(tmp_path / "four")[3]["evaluation"]["global"]["full"] == three["global_accuracy"]["full"]["last"]


@pytest.mark.parametrize("stop", [2, 3])
def test_a_run_with_skipped_rounds_goes_on_to_the_same_bytes(toml, tmp_path, break_rounds, stop):
    break_rounds(2, 3, 6)
    whole = run(toml, tmp_path / "whole")

    def interrupt(record):
        if record["round"] == stop:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(toml, tmp_path / "run", on_round=interrupt)
    resumed = run(toml, tmp_path / "run", resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert resumed["skipped_rounds"] == whole["skipped_rounds"] == [2, 3, 6]


def test_patience_counts_rounds_from_before_a_resumption(toml, tmp_path, break_rounds):
    break_rounds(3, 4, 5)

    def interrupt(record):
        if record["round"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(toml, tmp_path / "run", on_round=interrupt)
    with pytest.raises(NoUploadError, match=r"^round 5: no usable upload .*\(3 rounds in turn\)$"):
        run(toml, tmp_path / "run", resume=True)
    assert len(lines(tmp_path / "run")) == 4
    assert run(toml, tmp_path / "run", "federation.patience=4", resume=True)["skipped_rounds"] == [3, 4, 5]


def test_a_run_of_which_no_round_counts_stops_and_leaves_nothing(toml, tmp_path, break_rounds):
    break_rounds(1, 2, 3)
    for overrides, message in (
        ((), r"^round 3: no usable upload .*\(3 rounds in turn\)$"),
        (("federation.rounds=2",), r"^round 2: .*\(2 rounds in turn\)$"),
        (("federation.patience=1",), r"^round 1: no usable upload in the round: client .*$"),
    ):
        with pytest.raises(NoUploadError, match=message):
            run(toml, tmp_path / "run", *overrides)
        assert not (tmp_path / "run").exists()


def test_a_merge_that_is_not_finite_is_skipped_with_any_number_of_workers(toml, tmp_path, monkeypatch):
    honest = FedAvg.aggregate

    def aggregate(self, state, params, sums):
        state, params = honest(self, state, params, sums)
        calls.append(1)
        return state, replace(params, flat=params.flat * float("inf")) if len(calls) == 2 else params

    calls: list[int] = []
    monkeypatch.setattr(FedAvg, "aggregate", aggregate)
    overrides = ("method.name=fedavg", "federation.capacities={ 1.0 = 1.0 }")
    finals = []
    for workers in (1, 2):
        calls.clear()
        out = tmp_path / f"run-{workers}"
        finals.append(run(toml, out, *overrides, workers=workers))
        second = lines(out)[1]
        assert re.match(
            r"the merge gave \d+ values of parameter '.*' that are not finite; it is", second["skipped_round"]
        )
        assert second["rejected"] == {}
    assert finals[0]["skipped_rounds"] == finals[1]["skipped_rounds"] == [2]
    assert finals[0]["params_sha256"] == finals[1]["params_sha256"]


def test_batches_that_are_not_finite_are_told_as_such(toml, tmp_path, break_rounds):
    """Only in training, which no look at the data before the first round can find: the client and the step."""
    break_rounds(2)
    run(toml, tmp_path / "run", "local.steps=3")
    second = lines(tmp_path / "run")[1]
    assert set(second["rejected"].values()) == {
        "the inputs of its batch in step 1 have 1280 of 1280 values that are not finite: look at its data's batch(), "
        "or at what changes them in training"
    }


def test_the_last_line_says_so(toml, tmp_path, break_rounds, capsys):
    break_rounds(2, 3)
    assert main(["run", str(toml), "--out", str(tmp_path / "run"), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "2 of 8 rounds were skipped, without a usable upload: 2, 3"
    assert "warning: round 2 is skipped (1 of 3 in turn): no usable upload in the round: client" in shown
