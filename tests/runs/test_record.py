"""The run directory: what is written, what is refused, what survives a kill or a full disk."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.runs import environment
from fedfibos.runs.environment import describe, without_folders
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory
from fedfibos.runs.summary import summarise


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[model]\nname = "mlp"\n[federation]\nclients = 10\ncohort = 5\nrounds = 3\n[method]\nname = "fedfibos"\n'
    )
    return load_experiment(path)


EVALUATION = {"global": {"full": 0.5, "submodels": {"mean": None}}, "local": {"mean": None, "by_capacity": {}}}


def line(number, **more):
    return {"round": number, "loss": 1.0, "bytes": {"down": 10, "up": 3}, "seconds": 0.5, "rejected": {}, **more}


def test_a_new_run_directory(tmp_path, experiment):
    out = tmp_path / "runs" / "first"
    directory = RunDirectory.open(out, to_toml(experiment), resume=False)
    assert directory.path == out
    assert (out / "config.toml").read_text() == to_toml(experiment)
    environment = json.loads((out / "environment.json").read_text())
    assert environment["cores"] >= 1
    assert {"fedfibos", "commit", "command", "python", "torch", "numpy", "platform", "cpu", "device"} < set(environment)
    assert directory.rounds() == []


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


def test_a_directory_of_which_only_temporary_files_were_written_counts_as_new(tmp_path, experiment):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.toml.tmp").write_text("see")
    RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=True)
    assert (tmp_path / "run" / "config.toml").read_text() == to_toml(experiment)


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


@pytest.mark.parametrize(("finished", "state"), [(False, "an unfinished"), (True, "a finished")])
def test_a_run_of_the_same_experiment_needs_resume(tmp_path, experiment, finished, state):
    directory = RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)
    directory.append_round(line(1))
    if finished:
        directory.finish({})
    advice = "pass --resume to go on, --overwrite to run it anew, or choose another --out"
    with pytest.raises(RecordError, match=f"holds {state} run of this experiment: {advice}"):
        RunDirectory.open(tmp_path / "run", to_toml(experiment), resume=False)


def test_more_rounds_are_the_same_experiment_to_go_on_with(tmp_path, experiment):
    """Nothing changes before it is known that there is a checkpoint; then the last round is no longer the last."""
    out = tmp_path / "run"
    directory = RunDirectory.open(out, to_toml(experiment), resume=False)
    for number in (1, 2, 3):
        directory.append_round(line(number, evaluation=EVALUATION) if number == 3 else line(number))
    directory.finish({"rounds": 3})
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    longer = load_experiment(tmp_path / "experiment.toml", ["federation.rounds=5"])
    with pytest.raises(RecordError, match=r"federation\.rounds is 3 there, got 5"):
        RunDirectory.open(out, to_toml(longer), resume=False)
    directory = RunDirectory.open(out, to_toml(longer), resume=True)
    with pytest.raises(RecordError, match="is finished and no sound checkpoint is left of it"):
        directory.go_on(0, to_toml(longer))
    (out / ".lock").unlink()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    warned = []
    directory.go_on(3, to_toml(longer), warned.append)
    assert len(warned) == 1
    assert warned[0].startswith("the evaluation of round 3 is no longer on record: it was made because the round was ")
    directory.go_on(3, to_toml(longer), warned.append)
    assert len(warned) == 1
    assert (out / "config.toml").read_text() == to_toml(longer)
    assert not (out / "final.json").exists()
    assert directory.rounds() == [line(1), line(2), line(3)]
    with pytest.raises(RecordError, match=r"federation\.rounds is 5 there, got 3"):
        RunDirectory.open(out, to_toml(experiment), resume=True)


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


@pytest.mark.parametrize(
    ("both", "more", "message"),
    [
        (["local.schedule=cosine"], [], "federation.rounds is 3 there, got 5"),  # every round's rate would be another
        ([], ["seed=1"], "seed is 0 there, got 1"),
    ],
)
def test_more_rounds_of_another_experiment_are_refused(tmp_path, experiment, both, more, message):
    path, out = tmp_path / "experiment.toml", tmp_path / "run"
    RunDirectory.open(out, to_toml(load_experiment(path, both)), resume=False).append_round(line(1))
    longer = to_toml(load_experiment(path, [*both, *more, "federation.rounds=5"]))
    with pytest.raises(RecordError) as caught:
        RunDirectory.open(out, longer, resume=True)
    assert message in str(caught.value)


def test_what_changes_no_round_may_be_another_when_a_run_is_gone_on_with(tmp_path, experiment):
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False).append_round(line(1))
    other = load_experiment(tmp_path / "experiment.toml", ["run.checkpoint_every=3", "evaluation.batch_size=7"])
    with pytest.raises(RecordError, match=r"holds another experiment: evaluation\.batch_size is 500 there, got 7"):
        RunDirectory.open(out, to_toml(other), resume=False)
    RunDirectory.open(out, to_toml(other), resume=True).go_on(1, to_toml(other))
    assert load_experiment(out) == other


def test_a_flower_run_goes_on_with_another_deadline_and_more_rounds(tmp_path):
    config = '[federation]\nrounds = {}\nmin_participants = {}\nevaluate_every = 2\n[local]\nschedule = "constant"\n'
    out = tmp_path / "run"
    directory = RunDirectory.open(out, config.format(3, 4), resume=False)
    for number in (1, 2, 3):
        directory.append_round(line(number, evaluation=EVALUATION) if number > 1 else line(number))
    del directory
    again = RunDirectory.open(out, config.format(5, 2), resume=True)
    again.go_on(3, config.format(5, 2))
    assert (out / "config.toml").read_text() == config.format(5, 2)
    assert again.rounds() == [line(1), line(2, evaluation=EVALUATION), line(3)]
    with pytest.raises(RecordError, match=r"federation\.rounds is 5 there, got 3"):
        RunDirectory.open(out, config.format(3, 2), resume=True)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("local.lr=0.1", "holds another experiment: local.lr is 0.05 there, got 0.1"),
        ("seed=1", "holds another experiment: seed is 0 there, got 1"),
        ("method.name=fedavg", "holds another experiment: method.name is 'fedfibos' there, got 'fedavg'"),
        ("local.steps=5", "holds another experiment: local.steps is not set there, got 5"),
        (
            "federation.capacities={1.0=1}",
            "holds another experiment: federation.capacities.1.0 is 0.2 there, got 1",
        ),
    ],
)
def test_another_experiment_is_refused_and_left_alone(tmp_path, experiment, override, message, resume):
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False).append_round(line(1))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = load_experiment(tmp_path / "experiment.toml", [override])
    with pytest.raises(RecordError) as caught:
        RunDirectory.open(out, to_toml(other), resume=resume)
    assert message in str(caught.value)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


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


def test_a_run_from_before_a_setting_existed_goes_on(tmp_path, experiment):
    """What its file does not have was what it is by default; another value is another experiment."""
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False).append_round(line(1))
    text = (out / "config.toml").read_text()
    assert "held = []\n" in text
    (out / "config.toml").write_text(text.replace("held = []\n", ""))
    RunDirectory.open(out, to_toml(experiment), resume=True)
    other = replace(experiment, model=replace(experiment.model, held=("classifier",)))
    with pytest.raises(RecordError, match=r"model.held is \[\] there, got \['classifier'\]"):
        RunDirectory.open(out, to_toml(other), resume=True)


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


def evaluated(number, full, submodels, local, by_capacity):
    evaluation = {
        "global": {"full": full, "submodels": submodels},
        "local": {"mean": local, "by_capacity": by_capacity},
    }
    return line(number, evaluation=evaluation)


def test_summary_of_three_evaluations_by_hand():
    rounds = [
        evaluated(1, 0.5, {"1.0": 0.5, "0.5": 0.1, "mean": 0.3}, 0.25, {"1.0": 0.5, "0.5": None}),
        line(2, rejected={"3": "NaN loss", "4": "NaN loss"}),
        evaluated(3, 0.75, {"1.0": 0.75, "0.5": 0.25, "mean": 0.5}, 0.75, {"1.0": 0.75, "0.5": 0.5}),
        evaluated(4, 0.25, {"1.0": 0.25, "0.5": 0.25, "mean": 0.25}, 0.5, {"1.0": 0.25, "0.5": None}),
    ]
    assert summarise(rounds) == {
        "global_accuracy": {
            "full": {"last": 0.25, "last20": 0.5, "best": 0.75},
            "submodels": {
                "1.0": {"last": 0.25, "last20": 0.5, "best": 0.75},
                "0.5": {"last": 0.25, "last20": pytest.approx(0.2), "best": 0.25},
                "mean": {"last": 0.25, "last20": pytest.approx(0.35), "best": 0.5},
            },
        },
        "local_accuracy": {
            "mean": {"last": 0.5, "last20": 0.5, "best": 0.75},
            "by_capacity": {
                "1.0": {"last": 0.25, "last20": 0.5, "best": 0.75},
                "0.5": {"last": 0.5, "last20": 0.5, "best": 0.5},  # the one evaluation that has it
            },
        },
        "bytes": {"down": 40, "up": 12},
        "seconds": 2.0,
        "rejected": 2,
    }


def test_last20_is_the_mean_of_the_last_twenty_evaluations_not_rounds():
    rounds = []
    for number in range(1, 51):
        accuracy = number / 100
        if number % 2 == 0:  # evaluations at 2, 4, ..., 50; the last twenty are 12, 14, ..., 50
            rounds.append(evaluated(number, accuracy, {"mean": accuracy}, accuracy, {}))
        else:
            rounds.append(line(number))
    curve = summarise(rounds)["global_accuracy"]["full"]
    assert curve == {"last": 0.5, "last20": pytest.approx(0.31), "best": 0.5}


def test_a_run_without_an_evaluation_has_no_summary():
    with pytest.raises(ValueError, match="at least one evaluated round, got none in 1 rounds"):
        summarise([line(1)])


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


def test_a_run_is_not_gone_on_with_on_other_examples(tmp_path, experiment):
    """Another numpy may draw another partition from the same seed, and other files hold other examples."""
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False, began={"dealt_sha256": "aa"}).append_round(line(1))
    RunDirectory.open(out, to_toml(experiment), resume=True, began={"dealt_sha256": "aa"})
    before = (out / "environment.json").read_bytes()
    with pytest.raises(RecordError, match=r"holds a run whose clients had other examples: .* choose another --out"):
        RunDirectory.open(out, to_toml(experiment), resume=True, began={"dealt_sha256": "bb"})
    assert (out / "environment.json").read_bytes() == before
