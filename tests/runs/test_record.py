"""The run directory: what is written, what is refused, what survives a kill or a full disk."""

import errno
import json
import os
import subprocess
import sys

import pytest
from run_lines import line

from fedfibos.config.experiment import to_toml
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory


def test_a_new_run_directory(tmp_path, experiment):
    out = tmp_path / "runs" / "first"
    directory = RunDirectory.open(out, to_toml(experiment), resume=False)
    assert directory.path == out
    assert (out / "config.toml").read_text() == to_toml(experiment)
    environment = json.loads((out / "environment.json").read_text())
    assert environment["cores"] >= 1
    assert {"fedfibos", "commit", "command", "python", "torch", "numpy", "platform", "cpu", "device"} < set(environment)
    assert directory.rounds() == []


def test_a_directory_of_which_only_temporary_files_were_written_counts_as_new(tmp_path, experiment):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.toml.tmp").write_text("see")
    RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=True)
    assert (tmp_path / "run" / "config.toml").read_text() == to_toml(experiment)


@pytest.mark.parametrize(("finished", "state"), [(False, "an unfinished"), (True, "a finished")])
def test_a_run_of_the_same_experiment_needs_resume(tmp_path, experiment, finished, state):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    directory.append_round(line(1))
    if finished:
        directory.finish({})
    advice = "pass --resume to go on, --overwrite to run it anew, or choose another --out"
    with pytest.raises(RecordError, match=f"holds {state} run of this experiment: {advice}"):
        RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)


def test_a_finished_record_without_its_checkpoints_is_never_started_over(tmp_path, experiment):
    """Committed results are such records."""
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    directory.append_round(line(1))
    directory.finish({})
    with pytest.raises(RecordError, match="no sound checkpoint is left of it"):
        RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=True).go_on(0, to_toml(experiment))
    assert directory.rounds() == [line(1)]
    assert (tmp_path / "run" / "final.json").exists()


def test_two_processes_do_not_write_one_directory(tmp_path, experiment):
    out = tmp_path / "run"
    directory = RunDirectory.open(out, to_toml(experiment), resume=False)
    program = (
        "import sys; from pathlib import Path; from fedfibos.config.experiment import load_experiment\n"
        "from fedfibos.config.experiment import to_toml\n"
        "from fedfibos.runs.record import RunDirectory\n"
        "RunDirectory.open(Path(sys.argv[1]), to_toml(load_experiment(sys.argv[2])), resume=True)"
    )
    command = [sys.executable, "-c", program, str(out), str(tmp_path / "experiment.toml")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BusyError" in refused.stderr
    assert "is another process's: wait for it, or choose another --out" in refused.stderr
    del directory
    subprocess.run(command, check=True)


def test_a_folder_of_something_else_is_refused(tmp_path, experiment):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(RecordError, match="is not empty and no run directory"):
        RunDirectory.open(tmp_path / "photos", to_toml(experiment), resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="file cannot be written: Not a directory"):
        RunDirectory.open(tmp_path / "file", to_toml(experiment), resume=False)


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, experiment, monkeypatch):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    directory.append_round(line(1))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)  # the operating system's answer when the disk is full
        for write in (lambda: directory.append_round(line(2)), lambda: directory.finish({"rounds": 1})):
            with pytest.raises(RecordError, match="cannot be written: No space left on device") as caught:
                write()
            assert "\n" not in str(caught.value)
    assert directory.rounds() == [line(1)]
    files = [".lock", "config.toml", "environment.json", "rounds.jsonl"]
    assert sorted(path.name for path in directory.path.iterdir()) == files
    directory.append_round(line(2))
    assert directory.rounds() == [line(1), line(2)]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_really_full_device(tmp_path, experiment):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    (directory.path / "rounds.jsonl").symlink_to("/dev/full")
    with pytest.raises(RecordError, match=r"rounds\.jsonl cannot be written: No space left on device"):
        directory.append_round(line(1))
