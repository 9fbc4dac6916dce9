"""Which files are a run's own."""

import errno

import pytest

from fedfibos.runs.files import begun, foreign, remove_own, temporary, written_or_said
from fedfibos.runs.reading import RecordError


def run_of(folder):
    """A run directory with a note of the user's in it."""
    for name in ("config.toml", "environment.json", "notes.txt", ".lock", ".final.json.tmp"):
        (folder / name).write_text("x")
    for name in ("checkpoint/round-000003", "checkpoint/rows", "code", "clients"):
        (folder / name).mkdir(parents=True)
    (folder / "checkpoint/rows/7.safetensors").write_text("x")
    (folder / "checkpoint/round-copy").mkdir()
    return folder


def test_only_a_runs_own_files_are_removed(tmp_path):
    remove_own(run_of(tmp_path))
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == [".lock", "checkpoint", "checkpoint/round-copy", "notes.txt"]


def test_a_run_has_begun_with_a_whole_line_results_or_a_checkpoint(tmp_path):
    assert not begun(tmp_path)
    (tmp_path / "rounds.jsonl").write_text('{"round"')
    assert not begun(tmp_path)
    (tmp_path / "rounds.jsonl").write_text('{"round": 1}\n')
    assert begun(tmp_path)


def test_a_folder_of_something_else(tmp_path):
    assert not foreign(tmp_path / "missing")
    (tmp_path / ".config.toml.tmp").write_text("")
    assert not foreign(tmp_path)
    assert temporary(tmp_path / ".lock")
    (tmp_path / "thesis.tex").write_text("")
    assert foreign(tmp_path)
    (tmp_path / "config.toml").write_text("")
    assert not foreign(tmp_path)


def test_a_refusal_names_the_file(tmp_path):
    said = r"final.json cannot be written: No space left on device; what is on record is unharmed$"
    with pytest.raises(RecordError, match=said), written_or_said(tmp_path / "final.json"):
        raise OSError(errno.ENOSPC, "No space left on device")
