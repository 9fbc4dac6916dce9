"""What commands end with: refused, failed, interrupted, or a reader who is gone."""

import errno
import os
import subprocess
import sys

import pytest

from fedfibos.cli import main
from fedfibos.cli.exit_codes import exit_code, in_words
from fedfibos.common.validation import ExperimentError
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import BusyError
from fedfibos.simulation import WorkerError
from fedfibos.soundness import NoUploadError


@pytest.fixture
def tiny(experiment_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = 'method.name = "fedavg"\nfederation = { cohort = 5, capacities = { 1.0 = 1.0 } }'
    experiment_file(changes, name="tiny.toml")
    return tmp_path


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ExperimentError("a key"), 2),
        (ValueError("a model that cannot be used"), 2),
        (FileNotFoundError("data set 'cifar10' was not found"), 2),
        (RecordError("no run directory"), 2),
        (PermissionError(errno.EACCES, "Permission denied", "/there"), 2),
        (caused(RecordError("out cannot be written"), NotADirectoryError(errno.ENOTDIR, "Not a directory")), 2),
        (caused(RecordError("out cannot be written"), OSError(errno.ENOSPC, "No space left on device")), 1),
        (caused(ExperimentError("a file"), OSError(errno.EIO, "Input/output error")), 2),
        (OSError(errno.ENOSPC, "No space left on device", "/there"), 1),
        (BusyError("another process's"), 1),
        (NoUploadError("all were rejected"), 1),
        (WorkerError("a worker died"), 1),
        (TypeError("a fault of the code's"), None),
    ],
    ids=repr,
)
def test_what_is_wrong_ends_with_2_and_what_fails_with_1(error, code):
    assert exit_code(error) == code


def test_what_the_operating_system_says_begins_with_the_file():
    assert in_words(OSError(errno.ENOSPC, "No space left on device", "/there")) == "/there: No space left on device"
    assert in_words(ValueError("as it is")) == "as it is"


@pytest.mark.parametrize(
    "command",
    [
        ["report", "nowhere"],
        ["audit", "nowhere"],
        ["diagnose", "nowhere"],
        ["evaluate", "nowhere"],
        ["export", "nowhere", "--capacity", "0.5", "--out", "a.pt2"],
        ["run", "nowhere", "--out", "x"],
        ["sweep", "nowhere"],
        ["methods", "nowhere"],
    ],
    ids=lambda command: command[0],
)
def test_a_missing_run_directory_or_file_is_refused_in_one_line(tiny, capsys, command):
    assert main(command) == 2
    err = capsys.readouterr().err
    assert "nowhere" in err
    assert err.count("\n") == 1
    assert [path.name for path in tiny.iterdir()] == ["tiny.toml"]


def test_a_used_run_directory_is_refused_before_data_are_loaded(tiny, monkeypatch, capsys):
    assert main(["run", "tiny.toml", "--out", "run", "--workers", "1"]) == 0
    (tiny / "full").mkdir()
    (tiny / "full" / "letter.txt").write_text("")
    capsys.readouterr()

    def unwanted(*arguments):
        raise AssertionError("the data were loaded")

    monkeypatch.setattr("fedfibos.simulation.world.load", unwanted)
    assert main(["run", "tiny.toml", "--out", "run"]) == 2
    assert "run holds a finished run of this experiment: pass" in capsys.readouterr().err
    assert main(["run", "tiny.toml", "--out", "full"]) == 2
    assert capsys.readouterr().err == "fedfibos: full is not empty and no run directory: choose another --out\n"


@pytest.mark.parametrize("end", ["raise SystemExit", "raise SystemExit(0)", "import sys; sys.exit('enough')"])
def test_an_exit_in_the_users_code_does_not_end_the_command_without_a_word(tiny, experiment_file, capsys, end):
    (tiny / "leaving.py").write_text(f"def net(num_classes, input_shape):\n    {end}\n")
    experiment_file('model.name = "leaving:net"', without=("model.options",), name="leaving.toml")
    assert main(["run", "leaving.toml", "--out", "x"]) in (1, 2)
    err = capsys.readouterr().err
    assert "SystemExit" in err
    assert err.count("\n") == 1


def test_ctrl_c_anywhere_is_said(tiny, monkeypatch, capsys):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedfibos.simulation.world.load", interrupted)
    assert main(["run", "tiny.toml", "--dry-run"]) == 130
    assert capsys.readouterr().err == "fedfibos: interrupted\n"


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["run", "tiny.toml", "--dry-run"],
        ["run", "tiny.toml", "--out", "x", "--workers", "1"],
        ["sweep", "study.toml", "--out", "x"],
        ["sweep", "study.toml", "--dry-run"],
        ["methods", "method.name=fedavg", "--model", "mlp"],
        ["methods", "method.name=fedavg", "--model", "mlp", "--json"],
        ["settings"],
        ["data"],
        ["demo", "--out", "x"],
        ["flower", "--help"],
        ["flower", "new", "x"],
    ],
    ids=" ".join,
)
def test_a_reader_who_is_gone_ends_every_command_quietly(tiny, monkeypatch, capfd, command):
    (tiny / "study.toml").write_text('base = "tiny.toml"\nseeds = [0]\n')
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as unread, monkeypatch.context() as here:
        here.setattr(sys, "stdout", unread)
        code = main(command)
    assert code == 141
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_head_ends_a_run_quietly_and_it_goes_on_later(tiny):
    program = (
        f"{sys.executable} -m fedfibos run tiny.toml federation.rounds=20000 evaluation.every=1 --out x --workers 1"
    )
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program} | head -2"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 141
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first == "fedavg on digits: mlp, 5 clients, 5 a round, 20,000 rounds, seed 0"
    assert second.startswith("round 1/20000  loss ")
    assert list((tiny / "x" / "checkpoint").glob("round-*"))
