"""The command line, on real runs: exit codes, one-line errors, progress, results, interruption."""

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from rich.filesize import decimal

from fedfibos import cli
from fedfibos.cli import main
from fedfibos.cli.dry_run import how_dealt
from fedfibos.cli.methods import summary
from fedfibos.cli.progress import progress_on
from fedfibos.common.formatting import duration, percent
from fedfibos.config.experiment import load_experiment
from fedfibos.methods import METHODS
from fedfibos.simulation.population import Parts

FEDAVG = Path(__file__).parents[2] / "experiments" / "digits" / "fedavg.toml"


@pytest.fixture
def tiny(experiment_file):
    """All five clients in both rounds, of the five capacities that are the default."""
    changes = """
model.options.hidden = [16]
federation.cohort = 5
evaluation.every = 1
"""
    return str(experiment_file(changes, without=("federation.capacities",)))


def test_a_run_shows_its_evaluations_and_results_and_leaves_its_record(tiny, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", tiny, "seed=3", "--out", str(out), "--workers", "1"]) == 0
    shown = capsys.readouterr()
    final = json.loads((out / "final.json").read_text())
    assert (final["method"], final["seed"], final["rounds"]) == ("fedfibos", 3, 2)
    keys = "method seed rounds params_sha256 global_accuracy local_accuracy balanced_accuracy macro_f1 majority_share"
    keys += " metrics bytes seconds rejected"
    assert set(final) == set(keys.split())
    assert set(final["global_accuracy"]["submodels"]) == {"1.0", "0.5", "0.25", "0.125", "0.0625", "mean"}
    assert [json.loads(line)["round"] for line in (out / "rounds.jsonl").read_text().splitlines()] == [1, 2]
    assert re.search(r"^round 2/2  loss \d\.\d{3}  global \d+\.\d %", shown.out, re.MULTILINE)
    assert "global, full model" in shown.out
    assert percent(final["global_accuracy"]["submodels"]["0.0625"]["last"]) in shown.out
    assert f"run directory: {out}" in shown.out

    assert main(["run", tiny, "seed=3", "--out", str(out)]) == 2
    assert one_line(capsys) == (
        f"fedfibos: {out} holds a finished run of this experiment: pass --resume to go on, "
        "--overwrite to run it anew, or choose another --out"
    )
    assert main(["run", str(out), "--out", str(out), "--resume", "--workers", "1"]) == 0  # its own config.toml
    assert json.loads((out / "final.json").read_text()) == final
    assert main(["run", tiny, "seed=4", "--out", str(out)]) == 2
    assert "holds another experiment: seed is 3 there, got 4" in one_line(capsys)


def one_line(capsys):
    """What went to standard error, which must be a single line."""
    text = capsys.readouterr().err
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return text.rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "TINY", "local.lrr=1", "--out", "x"], "unknown key 'local.lrr'; did you mean 'local.lr'?"),
        (["run", "TINY", "federation.capacities={0.0=1}", "--out", "x"], "capacity must be in (0, 1], got 0"),
        (["run", "nowhere.toml", "--out", "x"], "nowhere.toml: cannot be read: No such file or directory"),
        (["run", "TINY"], "a run needs --out DIR"),
        (["run", "TINY", "--out"], "Option '--out' requires an argument."),
        (["run", "TINY", "--out", "--resume"], "a folder is wanted, got '--resume'"),
        (["run", "TINY", "--out", "x", "--workers", "0"], "0 is not in the range x>=1"),
        (["run", "TINY", "--out", "x", "--device", "tpu"], "'tpu' is not one of 'cpu', 'cuda'"),
        (["run", "TINY", "--out", "x", "--bogus"], "No such option"),
        (["run"], "Missing argument 'EXPERIMENT'"),
        (["train"], "No such command 'train'. fedfibos --help lists them"),
        (["sweep", "TINY"], "is an experiment, wanted a study (grid, seeds): fedfibos run runs it"),
        (["sweep", "."], ".: is a folder, wanted a study file"),
        (["pack", "nowhere"], "nowhere must be a folder of run directories, it does not exist"),
        (["report", "nowhere"], "nowhere must be a run directory, a folder of some or an archive of one, it does not"),
        (["report", "TINY"], "must be a run directory, a folder of some or an archive of one, it is another file"),
        ([], "Missing command"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(tiny, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main([tiny if argument == "TINY" else argument for argument in arguments]) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["federation.clients=2000"],
            "there must be at least one example a client, got 1437 for 2000 clients: lower federation.clients",
        ),
        (["data.partition.scheme=pathological", "data.partition.classes_per_client=11"], "11"),
        (["model.norm=batch"], "the mlp has no normalisation, norm must be 'none', got 'batch'"),
        (["data.name=cifar10", "--data-dir", "empty"], "data set 'cifar10' was not found: put "),
    ],
)
def test_what_cannot_be_run_is_one_line_and_exit_code_2(tiny, tmp_path, monkeypatch, capsys, overrides, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["run", tiny, *overrides, "--out", "x"]) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("key", ["base", "study"])
def test_a_file_that_another_names_and_that_is_not_there(tmp_path, capsys, key):
    path = tmp_path / "derived.toml"
    path.write_text(f'{key} = "nowhere.toml"\n')
    assert main(["sweep" if key == "study" else "run", str(path), "--dry-run"]) == 2
    assert one_line(capsys) == f"fedfibos: {path}: {key} = 'nowhere.toml': there is no {tmp_path / 'nowhere.toml'}"


def test_the_nearest_command_is_named_once(capsys):
    assert main(["ru"]) == 2
    assert one_line(capsys) == "fedfibos: No such command 'ru'. Did you mean 'run'?"


def test_help_loses_no_brackets(capsys):
    """Rich takes ``[words]`` in a help text for markup, and drops them."""
    assert main(["plan", "--help"]) == 0
    assert "(federation.devices)" in " ".join(capsys.readouterr().out.replace("│", "").split())
    sources = "".join(path.read_text() for path in (Path(cli.__file__).parent).glob("*.py"))
    assert re.findall(r'help="[^"]*\[[^"]*"', sources) == []


def test_a_dry_run_takes_the_nested_family_from_the_fleet(tiny, capsys):
    assert main(["run", tiny, "--dry-run"]) == 0
    plain = capsys.readouterr().out
    assert main(["run", tiny, "--dry-run", "local.nested=0.5"]) == 0
    nested = capsys.readouterr().out
    down = [[row.split()[-4] for row in shown.splitlines() if re.match(r"\d", row)] for shown in (plain, nested)]
    assert down[1][-1] == down[0][-1]  # the smallest has no smaller member
    assert float(down[1][0]) > float(down[0][0])  # the family travels with the others


def test_dry_run_prints_settings_and_what_each_capacity_holds(tiny, tmp_path, capsys):
    assert main(["run", tiny, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    resolved, _, table = shown.partition("1,210 parameters")  # 64 * 16 + 16 + 16 * 10 + 10
    (tmp_path / "resolved.toml").write_text(resolved)
    assert load_experiment(tmp_path / "resolved.toml") == load_experiment(tiny)
    assert max(map(len, table.splitlines())) <= 120
    rows = [re.findall(r"[\d.,]+", row) for row in table.splitlines() if re.match(r"\d", row)]
    # down: 4 bytes a held value and, for a mask, 1210 / 8 bytes of bitmap; up: the update and the Fisher estimate
    assert [row[:4] + row[-2:] for row in (rows[0], rows[1], rows[4])] == [
        ["1", "1", "1,210", "100.0", "4.8", "9.7"],
        ["1", "0.5", "605", "50.0", "2.6", "4.8"],
        ["1", "0.0625", "76", "6.3", "456", "608"],
    ]
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_how_the_data_were_dealt_is_told_by_hand(monkeypatch):
    """Three clients: one example of class 0; three of two classes, two of them alike; four of one class."""
    labels = torch.tensor([0, 1, 2, 2, 1, 1, 1, 1])
    population = SimpleNamespace(
        train=SimpleNamespace(labels=labels), parts=Parts([torch.tensor(p) for p in ([0], [1, 2, 3], [4, 5, 6, 7])])
    )
    assert how_dealt(population) == (
        "a client has (least, median, most): 1, 3, 4 examples; 1, 1, 2 classes; 67, 100, 100 % of the largest class"
    )


def test_version_methods_and_data(tmp_path, capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"fedfibos \d+\.\d+\.\d+\n", capsys.readouterr().out)
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in METHODS)
    assert "algorithm1" in shown
    assert main(["data", "--data-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"digits\s+│ yes", shown)
    assert re.search(r"cifar10\s+│ no", shown)
    assert "cifar-10-python.tar.gz" in shown.replace("\n", "")


def test_one_method_without_an_experiment(capsys):
    assert main(["methods", "method.name=fiarse", "--model", "lenet"]) == 0
    shown = capsys.readouterr().out
    assert "Wu" in shown or "FIARSE" in shown  # its paper
    assert "heterofl" not in shown
    assert len(re.findall(r"^fiarse +[\d.]+ ", shown, re.MULTILINE)) == 5
    assert main(["methods", "method.name=fiarse", "--model", "lenet", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 5
    assert main(["methods", "method.name=fiars"]) == 2
    assert "did you mean 'fiarse'?" in capsys.readouterr().err
    assert main(["methods", "local.lr=1"]) == 2
    assert "without an experiment file only method.name can be set, got 'local.lr=1'" in capsys.readouterr().err


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_selects_and_where_it_is_from(name):
    row = summary(name)
    assert len(row.selects.split()) > 3
    assert len(row.paper.split()) > 5
    assert row.granularity == {"fedavg": "whole model", "fedfibos": "scalars", "fiarse": "scalars"}.get(
        name, "channels"
    )


def test_a_table_in_a_pipe_is_whole_unless_a_width_is_asked_for(tmp_path, monkeypatch, capsys):
    """A pipe has no width: rich takes 80, and cuts numbers off."""
    text = (FEDAVG.parent / "fedfibos.toml").read_text()
    own = tmp_path / "a_method_with_a_long_name.py"
    own.write_text("from fedfibos.methods import FedAvg as Method_with_a_long_name_too\n")
    name = "a_method_with_a_long_name:Method_with_a_long_name_too"
    (tmp_path / "my.toml").write_text(text.replace('name = "fedfibos"', f'name = "{name}"', 1))
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["methods", str(tmp_path / "my.toml")]) == 0
    whole = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["methods", str(tmp_path / "my.toml")]) == 0
    cut = capsys.readouterr().out
    assert "…" not in whole
    assert "…" in cut


def test_help_needs_no_torch():
    code = "import sys; from fedfibos.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_ctrl_c_finishes_the_round_and_says_how_to_go_on(tiny, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "fedfibos", "run", tiny, "federation.rounds=100000", "--out", str(out)]
    with subprocess.Popen(
        [*command, "--workers", "1"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        deadline = time.monotonic() + 60
        while not (out / "rounds.jsonl").exists():
            assert run.poll() is None, run.stderr.read()
            assert time.monotonic() < deadline, "no round within a minute"
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    finished = len((out / "rounds.jsonl").read_text().splitlines())
    assert errors == (
        f"fedfibos: interrupted after round {finished}; go on with: "
        f"fedfibos run {tiny} federation.rounds=100000 --out {out} --resume --workers 1\n"
    )
    assert (out / "checkpoint" / f"round-{finished:06d}").is_dir()


def record(number, evaluation=True):
    accuracies = {"global": {"full": 0.5, "submodels": {"mean": 0.25}}, "local": {"mean": None}}
    more = {"evaluation": accuracies} if evaluation else {}
    return {"round": number, "loss": 1.5, "bytes": {"down": 2000, "up": 1000}, "rejected": {"4": "NaN"}, **more}


def test_plain_progress_prints_a_line_an_evaluation(tiny):
    file = io.StringIO()
    progress = progress_on(Console(file=file))
    progress.start(load_experiment(tiny))
    progress.round(record(1, evaluation=False))
    progress.warn("a [bracketed] warning")
    progress.round(record(2))
    progress.finish(None)
    assert file.getvalue().splitlines() == [
        "fedfibos on digits: mlp, 5 clients, 5 a round, 2 rounds, seed 0",
        "warning: a [bracketed] warning",
        "round 2/2  loss 1.500  global 50.0 % (submodels 25.0 %)  local –  down 4.0 kB  up 2.0 kB  2 rejected",
    ]


def test_a_terminal_gets_a_live_bar(tiny):
    file = io.StringIO()
    progress = progress_on(Console(file=file, force_terminal=True, width=200))
    progress.start(load_experiment(tiny, ["federation.rounds=9"]))
    progress.resume([record(number, evaluation=False) for number in range(1, 5)])
    progress.round(record(5))
    progress.warn("a warning")
    progress.finish(None)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", file.getvalue())
    assert "warning: a warning" in shown
    assert "going on after round 4" in shown
    assert "5/9" in shown
    assert "down 10.0 kB  up 5.0 kB  5 rejected" in shown
    assert "loss 1.500  global 50.0 % (submodels 25.0 %)" in shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (59.6, "1m00s"), (185, "3m05s"), (7620, "2h07m")]
)
def test_durations_for_reading(seconds, text):
    assert duration(seconds) == text


def test_help_says_what_an_argument_is(capsys):
    """A newer click drops the words; the project's requirements keep it out."""
    with contextlib.suppress(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert "Experiment file (TOML)" in text
    assert "section.key=value" in text


def test_a_validation_share_that_leaves_nothing_to_train_on_is_one_line(tmp_path, capsys):
    assert main(["run", str(FEDAVG), "evaluation.validation=0.9999", "--out", str(tmp_path / "run")]) == 2
    wanted = "evaluation.validation = 0.9999 leaves 0 of 1437 training examples, wanted at least 2"
    assert wanted in capsys.readouterr().err


@pytest.mark.parametrize(("model", "reason"), [("text", "texts"), ("resnet9", "did you mean 'resnet")])
def test_costs_of_a_model_that_has_none_are_one_line_and_nothing_else(model, reason, capsys):
    assert main(["methods", "--model", model]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert err.count("\n") == 1


def test_what_a_resumption_finds_is_said_and_a_finished_run_stays_as_it_is(tmp_path, capsys):
    run = ["run", str(FEDAVG), "federation.rounds=1", "evaluation.validation=0.2", "--out", str(tmp_path / "run")]
    assert main([*run, "--workers", "1", "--resume"]) == 0
    out, err = capsys.readouterr()
    assert "holds no run to go on with: starting from round 1" in err
    assert "measured on held-out training examples" in out
    environment = tmp_path / "run" / "environment.json"
    other = json.dumps({**json.loads(environment.read_text()), "torch": "1.0"})
    environment.write_text(other)
    assert main([*run, "--workers", "1", "--resume"]) == 0
    assert environment.read_text() == other
    assert "holds no run" not in capsys.readouterr().err


def test_a_run_that_goes_on_counts_what_it_had_sent(tiny, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["run", tiny, "--out", str(out), "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["run", tiny, "federation.rounds=3", "--out", str(out), "--resume", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "going on after round 2\n" in shown
    sent = json.loads((out / "final.json").read_text())["bytes"]
    last = next(line for line in shown.splitlines() if line.startswith("round 3/3"))
    assert f"down {decimal(sent['down'])}  up {decimal(sent['up'])}" in last


def test_an_evaluation_that_a_run_goes_on_without_is_said(tiny, tmp_path, capsys):
    command = ["run", tiny, "evaluation.every=3", "--out", str(tmp_path / "run"), "--workers", "1"]
    assert main(command) == 0
    assert main([*command, "federation.rounds=3", "--resume"]) == 0
    shown = capsys.readouterr().out
    assert "warning: the evaluation of round 2 is no longer on record: it was made because the round was the l" in shown


def test_a_flower_run_directory_is_named_as_such(tmp_path, capsys):
    (tmp_path / "config.toml").write_text('seed = 0\n[method]\nname = "fedfibos"\n[federation]\nscores = "server"\n')
    assert main(["axes", str(tmp_path)]) == 2
    assert "is the run directory of a Flower app" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 2
    assert "the run of a Flower app in which nobody has taken part yet" in capsys.readouterr().err
