"""What 80 columns show: nothing cut, nothing wrapped; and summaries that say what they are of."""

import io
import json
import re

import pytest
from rich.console import Console

from fedfibos.cli import main
from fedfibos.cli.diagnose import diagnosis_table
from fedfibos.cli.progress import loss_of, progress_on, title
from fedfibos.cli.results import mean_heading
from fedfibos.common.statistics import Spread
from fedfibos.config.experiment import load_experiment
from fedfibos.report.tables import best_of


@pytest.fixture
def tiny(experiment_file):
    changes = """
method.name = "fedavg"
federation.rounds = 3
evaluation.every = 1
"""
    return experiment_file(changes, name="tiny.toml")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, "loss 1.500  global 50.0 %  local –"),
        (60, "loss 1.500"),
        (200, "loss 1.500  global 50.0 % (submodels 25.0 %)  local –  down 2.0 kB  up 1.0 kB"),
    ],
)
def test_the_bar_keeps_round_and_time_left_and_leaves_out_what_does_not_fit(tiny, width, shown):
    file = io.StringIO()
    progress = progress_on(Console(file=file, force_terminal=True, width=width))
    progress.start(load_experiment(tiny, ["federation.rounds=1000"]))
    evaluation = {"global": {"full": 0.5, "submodels": {"mean": 0.25}}, "local": {"mean": None}}
    sent = {"down": 2000, "up": 1000}
    progress.round({"round": 7, "loss": 1.5, "bytes": sent, "rejected": {}, "evaluation": evaluation})
    progress.finish(None)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", file.getvalue())
    last = [line for line in re.split(r"[\r\n]", text) if "7/1000" in line][-1]
    assert re.search(r"^fedavg \S+ +7/1000 \S+ ", last)
    assert last.rstrip().endswith(shown)
    assert "…" not in last
    assert len(last) <= width


def summary(mean, sd=0.011):
    return {"mean": mean, "sd": sd}


def test_a_diagnosis_fits_80_columns_whole():
    numbers = {
        "surrogate": summary(1.23e-5),
        "error": {"held": summary(0.00123), "dense": summary(0.0123)},
        "coefficient": {"held": summary(0.0123), "dense": summary(12.3)},
        "jaccard": summary(0.45),
    }
    found = {
        "selections": {name: numbers for name in ("method", "fisher", "ssp", "magnitude", "random")},
        "violations": {"fisher": summary(0.12), "maintained": summary(0.34)},
        "order_agreement": {"held": summary(0.56), "dense": summary(0.78)},
        "k": 1_234_567,
    }
    diagnosis = {"round": 100, "clients": [0, 1], "capacities": {"0.0625": found}, "cv": {"F": summary(1.5)}}
    file = io.StringIO()
    Console(file=file, width=80).print(diagnosis_table(diagnosis))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert re.search(r"magnitude +1.23e-05 +0.00123 +0.0123 +0.0123 +12.3 +0.45 ± 0.01", text)
    assert re.search(r"0.0625 +1234567 +0.12 ± 0.01 +0.34 ± 0.01 +0.56 ± 0.01 +0.78 ± 0.01", text)


def test_a_mean_of_fewer_than_20_says_of_how_many():
    assert mean_heading(20) == "mean of last 20"
    assert mean_heading(3) == "mean of all 3"


@pytest.mark.parametrize(
    ("loss", "text"), [(2.16049, "loss 2.160"), (99999.0, "loss 99999.000"), (5.08e11, "loss 5.08e+11")]
)
def test_a_loss_is_never_a_long_row_of_digits(loss, text):
    assert loss_of({"loss": loss}) == text


def test_one_of_a_thing_is_no_plural(tiny):
    experiment = load_experiment(tiny, ["federation.rounds=1", "federation.cohort=1"])
    assert title(experiment) == "fedavg on digits: mlp, 5 clients, 1 a round, 1 round, seed 0"


def test_one_seed_has_no_winner():
    one, more = Spread(0.9, None, 1), Spread(0.8, 0.01, 3)
    assert [cell.bold for cell in best_of([[one, more, None]])[0]] == [False, False, False]
    assert [cell.bold for cell in best_of([[Spread(0.9, 0.01, 2), more, None]])[0]] == [True, False, False]


def test_run_and_sweep_show_the_summary_that_is_asked_for(tiny, tmp_path, capsys):
    run = ["run", str(tiny), "--out", str(tmp_path / "run"), "--workers", "1"]
    for options, heading, key in (
        ([], "last evaluation", "last"),
        (["--summary", "last20"], "mean of all 3", "last20"),
        (["--summary", "best"], "best evaluation", "best"),
    ):
        assert main([*run, "--overwrite", *options]) == 0
        shown = capsys.readouterr().out
        head = [cell.strip() for cell in re.search(r"┃(.*accuracy.*)┃", shown).group(1).split("┃")]
        assert head == ["accuracy", heading]
        full = json.loads((tmp_path / "run" / "final.json").read_text())["global_accuracy"]["full"][key]
        assert re.search(rf"│ global, full model +│ +{100 * full:.1f} % │", shown)
    (tmp_path / "study.toml").write_text('base = "tiny.toml"\nseeds = [0]\n')
    sweep = ["sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "runs"), "--workers", "1"]
    assert main(sweep) == 0
    assert "accuracy in %, last evaluation, mean ± sd over seeds" in " ".join(capsys.readouterr().out.split())
    assert main([*sweep, "--summary", "best"]) == 0
    out = capsys.readouterr().out
    best = json.loads((tmp_path / "run" / "final.json").read_text())["global_accuracy"]["full"]["best"]
    assert f"{100 * best:.1f} (n = 1)" in out
    assert "best evaluation" in " ".join(out.split())
