"""A run that goes on past a damaged checkpoint ends in the bytes of one that was never broken off."""

from __future__ import annotations

import json
import shutil

import pytest

from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.runs.record import RunDirectory
from fedfibos.simulation import simulate
from small_experiment import small_experiment

CHANGES = """
federation.rounds = 6
method = { sharing = "client", prior = "none" }
evaluation.every = 2
run.checkpoint_every = 2
"""


def experiment(tmp_path, *overrides):
    path = tmp_path / "experiment.toml"
    path.write_text(small_experiment(CHANGES))
    return load_experiment(path, overrides)


def changed(path, change):
    path.write_text(json.dumps(change(json.loads(path.read_text())), indent=1) + "\n")


def swapped_rows(meta):
    (one, first), (other, second) = list(meta["rows"].items())[:2]
    return {**meta, "rows": {**meta["rows"], one: second, other: first}}


DAMAGE = {
    "an earlier round": lambda folder: changed(folder / "meta.json", lambda meta: {**meta, "round": 3}),
    "swapped rows": lambda folder: changed(folder / "meta.json", swapped_rows),
    "no rows": lambda folder: changed(folder / "meta.json", lambda meta: {**meta, "rows": {}}),
    "no files": lambda folder: changed(folder / "meta.json", lambda meta: {**meta, "files": {}}),
    "another size": lambda folder: changed(folder / "meta.json", lambda meta: {**meta, "size": 3}),
    "another layout": lambda folder: changed(folder / "meta.json", lambda meta: {**meta, "layout": "ff"}),
    "a list": lambda folder: changed(folder / "meta.json", lambda meta: []),
    "nothing": lambda folder: changed(folder / "meta.json", lambda meta: None),
    "another name": lambda folder: folder.rename(folder.with_name("round-000006")),
    "no parameters": lambda folder: (folder / "params.safetensors").unlink(),
}


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory):
    """A run of four rounds with two checkpoints, and what one of six comes to."""
    folder = tmp_path_factory.mktemp("runs")
    whole = simulate(experiment(folder), folder / "whole", workers=1)
    simulate(experiment(folder, "federation.rounds=4"), folder / "broken", workers=1)
    return folder / "broken", whole


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_simulation_goes_on_from_the_checkpoint_before(broken_off, tmp_path, damage):
    broken, whole = broken_off
    shutil.copytree(broken, tmp_path / "run")
    DAMAGE[damage](tmp_path / "run" / "checkpoint" / "round-000004")
    warnings = []
    resumed = simulate(experiment(tmp_path), tmp_path / "run", resume=True, workers=1, on_warning=warnings.append)
    assert sum("is damaged (" in text and text.endswith(": using round-000002") for text in warnings) == 1
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}


def test_a_line_that_was_changed_before_the_checkpoint_is_run_again(broken_off, tmp_path):
    """Its checkpoint gives way to the one before the line."""
    broken, whole = broken_off
    shutil.copytree(broken, tmp_path / "run")
    path = tmp_path / "run" / "rounds.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"loss": ', '"loss": 9')
    path.write_text("".join(lines))
    warnings = []
    resumed = simulate(experiment(tmp_path), tmp_path / "run", resume=True, workers=1, on_warning=warnings.append)
    assert warnings[-1] == (
        "checkpoint round-000004 was written after other rounds than the first 4 of rounds.jsonl: using round-000002"
    )
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}


def test_a_run_whose_last_evaluation_was_dropped_is_gone_on_with_twice(tmp_path):
    """The line of the checkpoint's round is then no longer what it was, and it is of the same run."""
    short, long = experiment(tmp_path, "federation.rounds=3"), experiment(tmp_path)
    whole = simulate(long, tmp_path / "whole", workers=1)
    simulate(short, tmp_path / "run", workers=1)
    warnings = []

    directory = RunDirectory.open(tmp_path / "run", to_toml(long), resume=True)
    directory.go_on(3, to_toml(long), warnings.append)  # and is killed
    del directory
    assert len(warnings) == 1
    resumed = simulate(long, tmp_path / "run", resume=True, workers=1, on_warning=warnings.append)
    assert not any("checkpoint" in text for text in warnings)
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}


@pytest.mark.parametrize(
    ("old", "new"), [("seed = 0", "seed = 4"), ("lr = 0.05", "lr = 0.04"), ('"digits"', '"digitr"')]
)
def test_a_run_is_not_gone_on_with_as_a_damaged_configuration_says(broken_off, tmp_path, capsys, old, new):
    """``fedfibos run RUN --resume`` takes the experiment from the run directory itself."""
    run = tmp_path / "run"
    shutil.copytree(broken_off[0], run)
    text = (run / "config.toml").read_text()
    assert text.count(old) == 1
    (run / "config.toml").write_text(text.replace(old, new).replace("rounds = 4", "rounds = 6"))
    rounds = (run / "rounds.jsonl").read_bytes()
    code = main(["run", str(run), "--out", str(run), "--resume", "--workers", "1"])
    error = capsys.readouterr().err
    assert code != 0
    assert f"{run / 'config.toml'}" in error or "data set" in error or "data.name" in error
    assert "Traceback" not in error
    assert (run / "rounds.jsonl").read_bytes() == rounds
