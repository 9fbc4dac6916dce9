"""Runs that are looked at while they go on: hooks that stop them, the best checkpoint, records of clients."""

from __future__ import annotations

import json
import sys

import pytest

from fedfibos.config.experiment import load_experiment
from fedfibos.runs.reading import RecordError
from fedfibos.simulation import STOP, Interrupted, Stopped, simulate
from fedfibos.simulation.reopen import reopen

OVERRIDES = ("federation.rounds=6", "evaluation.every=1", "run.checkpoint_every=6", "federation.cohort=4")


@pytest.fixture
def experiment():
    return lambda *more: load_experiment("experiments/digits/fedfibos.toml", (*OVERRIDES, *more))


def lines(run):
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def raise_stop(record):
    if record["round"] == 3:
        raise StopIteration


@pytest.mark.slow_where("raise_stop")
@pytest.mark.parametrize("hook", [lambda record: STOP if record["round"] == 3 else None, raise_stop])
def test_a_hook_stops_a_run_and_it_goes_on_to_the_same_bytes(experiment, tmp_path, hook):
    whole = simulate(experiment(), tmp_path / "whole", workers=1)
    with pytest.raises(Stopped, match=r"^stopped by on_round after round 3$") as stopped:
        simulate(experiment(), tmp_path / "run", workers=1, on_round=hook)
    assert isinstance(stopped.value, Interrupted)
    assert stopped.value.finished_rounds == len(lines(tmp_path / "run")) == 3
    again = simulate(experiment(), tmp_path / "run", workers=1, resume=True)
    assert again["params_sha256"] == whole["params_sha256"]


def test_what_a_hook_gives_otherwise_changes_nothing(experiment, tmp_path):
    seen = []
    final = simulate(experiment(), tmp_path / "run", workers=1, on_round=lambda record: seen.append(record) or False)
    assert final["rounds"] == len(seen) == 6
    assert seen == lines(tmp_path / "run")


def test_a_failing_hook_costs_no_round(experiment, tmp_path):
    def broken(record):
        if record["round"] == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        simulate(experiment(), tmp_path / "run", workers=1, on_round=broken)
    seen = []
    simulate(experiment(), tmp_path / "run", workers=1, resume=True, on_round=seen.append)
    assert [record["round"] for record in seen] == [3, 4, 5, 6]


def test_the_best_checkpoint_is_kept_and_opened_again(experiment, tmp_path):
    chosen = experiment("checkpoint.best=loss", "run.checkpoint_every=1")
    simulate(chosen, tmp_path / "run", workers=1)
    losses = [line["loss"] for line in lines(tmp_path / "run")]
    best = losses.index(min(losses)) + 1
    assert reopen(tmp_path / "run", at="best").checkpoint.round == best
    assert reopen(tmp_path / "run").checkpoint.round == 6
    assert reopen(tmp_path / "run", at=5).checkpoint.round == 5
    said: list[str] = []
    reopen(tmp_path / "run", warn=said.append)
    assert said == []
    environment = tmp_path / "run" / "environment.json"
    environment.write_text(json.dumps(json.loads(environment.read_text()) | {"dealt_sha256": "00" * 32}))
    reopen(tmp_path / "run", warn=said.append)
    assert said == [
        f"clients have other examples than when {tmp_path / 'run'} was last run, so its numbers do not compare: other "
        "data files, a data function that draws without a seed, or another version of numpy or torch"
    ]
    kept = sorted(path.name for path in (tmp_path / "run/checkpoint").glob("round-*"))
    assert kept == [f"round-{n:06d}" for n in sorted({best, 5, 6})]


def test_a_best_round_between_two_checkpoints_is_kept_through_an_interruption(experiment, tmp_path):
    chosen = experiment("checkpoint.best=global_accuracy.full", "local.lr=0.5")
    whole = simulate(chosen, tmp_path / "whole", workers=1)
    accuracies = [line["evaluation"]["global"]["full"] for line in lines(tmp_path / "whole")]
    best = accuracies.index(max(accuracies)) + 1
    opened = reopen(tmp_path / "whole", at="best")
    assert opened.checkpoint.round == best
    with pytest.raises(Stopped):
        simulate(chosen, tmp_path / "run", workers=1, on_round=lambda record: STOP if record["round"] == 4 else None)
    again = simulate(chosen, tmp_path / "run", workers=1, resume=True)
    assert again["params_sha256"] == whole["params_sha256"]
    assert reopen(tmp_path / "run", at="best").checkpoint.params.sha256() == opened.checkpoint.params.sha256()


def test_a_checkpoint_that_is_not_kept_is_one_line(experiment, tmp_path):
    simulate(experiment(), tmp_path / "run", workers=1)
    with pytest.raises(RecordError, match=r"keeps no checkpoint after round 2, it has those after round 6$"):
        reopen(tmp_path / "run", at=2)
    with pytest.raises(RecordError, match=r"keeps no best checkpoint: run it with checkpoint\.best"):
        reopen(tmp_path / "run", at="best")


def test_clients_are_on_record_where_that_is_asked_for(experiment, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="an extra")
    plain = simulate(experiment(), tmp_path / "plain", workers=1)
    assert "clients" not in lines(tmp_path / "plain")[0]
    assert not (tmp_path / "plain/clients.parquet").exists()
    final = simulate(experiment("run.client_records=true"), tmp_path / "run", workers=2)
    assert final["params_sha256"] == plain["params_sha256"]
    records = lines(tmp_path / "run")
    for record, before in zip(records, lines(tmp_path / "plain"), strict=True):
        parts = record["clients"].values()
        assert len(parts) == 4
        assert sum(part["down"] for part in parts) == record["bytes"]["down"] == before["bytes"]["down"]
        assert sum(part["up"] for part in parts) == record["bytes"]["up"]
        assert sum(part["loss"] for part in parts) / 4 == pytest.approx(record["loss"])
        assert all(part["seconds"] > 0 and part["memory"] > 10**7 for part in parts)
    table = parquet.read_table(tmp_path / "run/clients.parquet")
    names = ["round", "client", "capacity", "loss", "seconds", "down", "up", "memory", "rejected"]
    assert table.column_names == names
    rows = table.to_pylist()
    assert len(rows) == 24
    first = next(iter(records[0]["clients"].items()))
    assert rows[0] == {"round": 1, "client": int(first[0]), "rejected": None, **first[1]}


def test_without_pyarrow_the_table_is_a_warning(experiment, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = []
    simulate(experiment("run.client_records=true"), tmp_path / "run", workers=1, on_warning=said.append)
    assert "clients.parquet is not written: pyarrow is not installed: pip install 'fedfibos[data]'" in said
    assert len(lines(tmp_path / "run")[0]["clients"]) == 4
