"""Which directories a run may begin in, and what it removes of one that is used."""

from __future__ import annotations

import re

import pytest

from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.round import NoUploadError
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory, check_usable
from fedfibos.simulation import engine, simulate


@pytest.fixture
def experiment(experiment_file):
    return load_experiment(
        experiment_file("""
            method = { sharing = "client", prior = "none" }
            evaluation.every = 2
            run.checkpoint_every = 1
        """)
    )


def other(tmp_path, *overrides):
    return load_experiment(tmp_path / "experiment.toml", overrides)


def test_a_run_that_failed_before_its_first_round_leaves_nothing(tmp_path, experiment, monkeypatch):
    out = tmp_path / "runs" / "one"
    (tmp_path / "runs").mkdir()

    def fail(*arguments, **options):
        raise NoUploadError("nobody answered")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "federated_round", fail)
        for resume in (False, True):
            with pytest.raises(NoUploadError):
                simulate(experiment, out, workers=1, resume=resume)
            assert not out.exists()
    assert simulate(other(tmp_path, "seed=1"), out, workers=1)["rounds"] == 2


def test_what_was_in_the_directory_before_stays_when_a_run_fails(tmp_path, experiment, monkeypatch):
    out = tmp_path / "one"
    RunDirectory.open(out, to_toml(experiment))
    (out / "notes.txt").write_text("mine")
    monkeypatch.setattr(engine, "setting_of", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        simulate(experiment, out, workers=1)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]


def test_a_run_that_was_killed_before_its_first_round_blocks_nothing(tmp_path, experiment):
    out = tmp_path / "one"
    RunDirectory.open(out, to_toml(experiment), began={"dealt_sha256": "aa"})
    (out / "rounds.jsonl").write_text('{"round": 1, "lo')
    changed = to_toml(other(tmp_path, "seed=1"))
    for resume in (False, True):
        assert RunDirectory.open(out, changed, resume=resume, began={"dealt_sha256": "bb"}).rounds() == []
        assert (out / "config.toml").read_text() == changed
        assert '"bb"' in (out / "environment.json").read_text()


def test_a_run_that_failed_later_keeps_its_rounds(tmp_path, experiment, monkeypatch):
    out, rounds = tmp_path / "one", []

    def second_fails(*arguments, **options):
        if rounds:
            raise NoUploadError("nobody answered")
        rounds.append(1)
        return federated_round(*arguments, **options)

    federated_round = engine.federated_round
    monkeypatch.setattr(engine, "federated_round", second_fails)
    with pytest.raises(NoUploadError):
        simulate(other(tmp_path, "federation.patience=1"), out, workers=1)
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 1
    assert (out / "checkpoint" / "round-000001").is_dir()


@pytest.mark.parametrize(
    ("overrides", "resume", "message"),
    [
        (
            (),
            False,
            "holds a finished run of this experiment: pass --resume to go on, --overwrite to run it anew",
        ),
        (("seed=1",), False, "seed is 0 there, got 1: choose another --out, or pass --overwrite to run anew"),
        (("seed=1",), True, "seed is 0 there, got 1: choose another --out, or pass --overwrite to run anew"),
    ],
)
def test_a_used_directory_is_refused_before_the_data_are_loaded(
    tmp_path, experiment, monkeypatch, overrides, resume, message
):
    out = tmp_path / "one"
    simulate(experiment, out, workers=1)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(engine, "build_world", lambda *arguments, **options: pytest.fail("the data were loaded"))
    with pytest.raises(RecordError, match=re.escape(message)):
        simulate(other(tmp_path, *overrides), out, workers=1, resume=resume)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    for overwrite in (False, True):
        with pytest.raises(RecordError, match="is not empty and no run directory"):
            simulate(experiment, tmp_path / "photos", workers=1, overwrite=overwrite)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_overwriting_removes_the_run_and_nothing_else(tmp_path, experiment):
    out = tmp_path / "one"
    whole = simulate(experiment, out, workers=1)
    names = ("notes.txt", "plots/a.png", "checkpoint/kept.txt", "checkpoint/round-000002.bak")
    mine = [out / name for name in names]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (out / "evaluation.json").write_text("{}")
    assert (out / "checkpoint" / "rows").is_dir()
    assert check_usable(out, to_toml(other(tmp_path, "seed=1")), overwrite=True) is False
    again = simulate(other(tmp_path, "seed=1", "method.sharing=shared"), out, workers=1, overwrite=True)
    assert again["params_sha256"] != whole["params_sha256"]
    written = ("meta.json", "params.safetensors", "state.safetensors")
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert files == {
        "config.toml", "environment.json", "partition.json", "rounds.jsonl", "final.json",
        *(f"checkpoint/round-00000{n}/{name}" for n in (1, 2) for name in written),
        *names,
    }  # fmt: skip
    assert all(path.read_text() == "mine" for path in mine)
    assert simulate(experiment, out, workers=1, overwrite=True)["params_sha256"] == whole["params_sha256"]


def test_the_command_overwrites_only_when_told(tmp_path, experiment, capsys):
    toml, out = str(tmp_path / "experiment.toml"), tmp_path / "one"
    assert main(["run", toml, "--out", str(out), "--workers", "1"]) == 0
    before = (out / "final.json").read_bytes()
    assert main(["run", toml, "seed=1", "--out", str(out), "--workers", "1"]) != 0
    assert "pass --overwrite to run anew" in capsys.readouterr().err
    assert main(["run", toml, "seed=1", "--out", str(out), "--resume", "--overwrite"]) == 2
    assert "pass one of them" in capsys.readouterr().err
    assert (out / "final.json").read_bytes() == before
    assert main(["run", toml, "seed=1", "--out", str(out), "--overwrite", "--workers", "1"]) == 0
    assert '"seed": 1' in (out / "final.json").read_text()
