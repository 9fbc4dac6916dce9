"""What is written down of the machine and the code, and what is not."""

import json
import subprocess

from run_lines import line

from fedfibos.config.experiment import to_toml
from fedfibos.runs import environment
from fedfibos.runs.environment import describe, without_folders
from fedfibos.runs.record import RunDirectory


def test_a_resumption_elsewhere_is_added_to_the_environment(tmp_path, experiment):
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False).append_round(line(1))
    path = out / "environment.json"
    first = json.loads(path.read_text())
    RunDirectory.open(out, to_toml(experiment), resume=True)
    assert json.loads(path.read_text()) == first
    path.write_text(json.dumps({**first, "torch": "2.6.0"}))
    RunDirectory.open(out, to_toml(experiment), resume=True)
    assert json.loads(path.read_text()) == {**first, "torch": "2.6.0", "resumed": [first]}


def test_nothing_in_the_environment_names_a_folder_of_the_machine():
    arguments = [
        "/home/someone/bin/fedfibos",
        "run",
        "a/b.toml",
        "--out",
        "/data/runs/x",
        "--data-dir=/data/d",
        "seed=3",
    ]
    assert describe("cpu", arguments)["command"] == [
        "fedfibos", "run", "a/b.toml", "--out", "x", "--data-dir=d", "seed=3"
    ]  # fmt: skip
    assert without_folders("local.lr=0.1") == "local.lr=0.1"


def test_changes_in_results_do_not_make_a_commit_dirty(tmp_path, monkeypatch):
    """Runs write there; anything else that is changed does."""

    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t", *arguments], cwd=tmp_path, check=True)

    (tmp_path / "src").mkdir()
    (tmp_path / "results").mkdir()
    for name in ("src/environment.py", "results/a"):
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "src" / "environment.py"))
    clean = environment.commit()
    assert len(clean) == 40
    (tmp_path / "results" / "a").write_text("2")
    assert environment.commit() == clean
    (tmp_path / "src" / "environment.py").write_text("2")
    assert environment.commit() == f"{clean}-dirty"


def test_a_checkout_that_moves_on_does_not_change_the_commit_of_the_code_in_memory(monkeypatch):
    environment.commit_loaded.cache_clear()
    found = iter(["a" * 40, "b" * 40])
    monkeypatch.setattr(environment, "commit", lambda: next(found))
    assert [environment.describe("cpu", [])["commit"] for _ in range(2)] == ["a" * 40] * 2
    environment.commit_loaded.cache_clear()


def test_a_command_line_is_recorded_without_its_secrets():
    """Flower starts a server app with a token on its command line."""
    line = [
        "flwr-serverapp",
        "--token",
        "0123abcd",
        "--run-id",
        "7",
        "--api-key=xyz",
        "--out",
        "/a/b/run",
    ]
    made = describe("cpu", line)["command"]
    assert made == ["flwr-serverapp", "--token", "...", "--run-id", "7", "--api-key=...", "--out", "run"]
