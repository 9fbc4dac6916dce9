"""Studies: the grid, what is skipped, resumed and reported, Ctrl-C, and the study files that ship."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedfibos.cli import main
from fedfibos.cli.dry_run import plan
from fedfibos.cli.exit_codes import INTERRUPTED, REFUSED
from fedfibos.cli.sweep import result
from fedfibos.common.statistics import Spread, spread
from fedfibos.common.validation import ExperimentError
from fedfibos.config.capacities import NON_UNIFORM, UNIFORM
from fedfibos.config.experiment import to_toml
from fedfibos.config.study import load_study
from fedfibos.model import model_of
from fedfibos.models.text import text_classifier
from fedfibos.params import maskable_names
from fedfibos.simulation import Interrupted, build_world
from fedfibos.simulation.sweep import SweepProgress, run_study
from fedfibos.types import Client
from small_experiment import small_experiment

STUDY = """
base = "base.toml"
seeds = [3, 1]
[all]
local.lr = 0.2
[grid.split.iid]
data.partition.scheme = "iid"
[grid.split.few]
data.partition = { scheme = "pathological", classes_per_client = 4 }
[grid.method.fiarse]
method.name = "fiarse"
[grid.method.letter]
method = { name = "fedfibos", preset = "algorithm1" }
"""
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STUDIES = sorted(
    path
    for folder in ("paper", "small")
    for path in (EXPERIMENTS / folder).glob("*.toml")
    if not path.stem.endswith("-base")
)


@pytest.fixture
def study(experiment_file, tmp_path):
    experiment_file(name="base.toml")
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


class Log(SweepProgress):
    """Remembers what it is told."""

    def __init__(self, interrupt_at=None):
        self.started, self.finished, self.interrupt_at = [], [], interrupt_at

    def start(self, run, resumed):
        self.started.append((run.folder.as_posix(), resumed))

        def on_round(record):
            if (len(self.started), record["round"]) == self.interrupt_at:
                os.kill(os.getpid(), signal.SIGINT)

        return on_round

    def finish(self, outcome):
        self.finished.append((outcome.run.folder.as_posix(), outcome.state))


def test_every_variant_of_every_axis_with_every_seed_seed_after_seed(study):
    runs = load_study(study).runs
    assert [run.folder.as_posix() for run in runs] == [
        f"{split}/{method}/seed-{seed}"
        for seed in (3, 1)
        for split in ("iid", "few")
        for method in ("fiarse", "letter")
    ]
    assert [run.experiment.seed for run in runs] == [3] * 4 + [1] * 4
    last = runs[-1].experiment
    assert (last.data.partition.scheme, last.data.partition.classes_per_client) == ("pathological", 4)
    assert (last.method.name, last.method.preset, last.local.lr) == ("fedfibos", "algorithm1", 0.2)


def test_a_derived_study_replaces_axes_and_overrides_all_before_the_variants(study):
    derived = study.with_name("derived.toml")
    derived.write_text(
        'study = "study.toml"\nseeds = [0]\n[all]\nlocal.lr = 0.5\n[grid.split.dirichlet]\ndata.partition.alpha = 9.0\n'
    )
    runs = load_study(derived, ["federation.rounds=7"]).runs
    assert [run.folder.as_posix() for run in runs] == ["dirichlet/fiarse/seed-0", "dirichlet/letter/seed-0"]
    for run in runs:
        assert (run.experiment.local.lr, run.experiment.federation.rounds) == (0.5, 7)
        assert run.experiment.data.partition.alpha == 9.0


@pytest.mark.slow
def test_two_processes_share_a_study(study, tmp_path):
    """What one is at, the other leaves alone."""
    only = ["method=fiarse", "seed=1"]
    first, _ = load_study(study, only=only).runs
    out = tmp_path / "out"
    program = (
        "import sys; from pathlib import Path; from fedfibos.config.experiment import load_experiment, to_toml\n"
        "from fedfibos.runs.record import RunDirectory\n"
        "held = RunDirectory.open(Path(sys.argv[1]), to_toml(load_experiment(sys.argv[2])), resume=True)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    (tmp_path / "first.toml").write_text(to_toml(first.experiment))
    command = [sys.executable, "-c", program, str(out / first.folder), str(tmp_path / "first.toml")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        outcomes = run_study(load_study(study, only=only), out, SweepProgress(), workers=1)
        assert [outcome.state for outcome in outcomes] == ["busy", "done"]
        assert result(outcomes[0]) == "left to the process that is at it"
        other.stdin.close()
    outcomes = run_study(load_study(study, only=only), out, SweepProgress(), workers=1)
    assert [outcome.state for outcome in outcomes] == ["done", "finished"]


def test_a_part_of_the_grid(study):
    runs = load_study(study, only=["method=letter", "seed=1"]).runs
    assert [run.folder.as_posix() for run in runs] == ["iid/letter/seed-1", "few/letter/seed-1"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s: s.replace('base = "base.toml"', ""), "must name its base .an experiment. or the study"),
        (lambda s: s.replace("seeds", "seed"), "a key of a study must be one of .* got 'seed'; did you mean 'seeds'"),
        (lambda s: s.replace("[3, 1]", "[3, 3]"), "seeds must differ"),
        (lambda s: s.replace("[3, 1]", "[-1]"), "seeds must be an array of integers from 0"),
        (lambda s: s.replace("[grid.split.iid]", '[grid.split."a/b"]'), "a variant becomes a folder's name, got 'a/b'"),
        (lambda s: s.replace("[grid.split.iid]", "[grid.split.iid]\nseed = 4"), "grid.split.iid must not set seed"),
        (lambda s: s.replace('"fiarse"', '"fiasre"'), "study.toml: method 'fiarse'.*did you mean 'fiarse'"),
        (lambda s: s.replace("local.lr = 0.2", "local.lr = -1.0"), "study.toml: .*lr must be a positive number"),
        (lambda s: s.replace("base.toml", "gone.toml"), "there is no .*gone.toml"),
        (
            lambda s: s.replace("base.toml", "study.toml").replace("base", "study"),
            "must not lead back to the same file",
        ),
    ],
)
def test_errors_are_one_line_and_name_the_place(study, edit, message):
    study.write_text(edit(STUDY))
    with pytest.raises(ExperimentError, match=message) as error:
        load_study(study)
    assert "\n" not in str(error.value)


def test_several_selections_of_one_axis_add_up(study):
    both = load_study(study, only=["method=fiarse", "method=letter", "seed=1", "split=iid"])
    assert [run.folder.as_posix() for run in both.runs] == ["iid/fiarse/seed-1", "iid/letter/seed-1"]


def test_a_study_without_seeds_has_that_of_its_base(study, experiment_file):
    experiment_file("seed = 7", name="base.toml")
    study.write_text(STUDY.replace("seeds = [3, 1]\n", ""))
    assert {run.experiment.seed for run in load_study(study).runs} == {7}


def test_cells_that_an_axis_makes_equal_are_refused(study):
    """Their results would stand under labels that say they differ."""
    study.write_text(
        STUDY + '[grid.rate.low]\nlocal.lr = 0.01\n[grid.rate.high]\nlocal.lr = 0.5\n'
        + '[grid.last.one]\nlocal.lr = 0.1\n'
    )  # fmt: skip
    with pytest.raises(ExperimentError, match=r"low/one/seed-3 and iid/fiarse/high/one/seed-3 are the same experiment"):
        load_study(study)


def test_an_axis_that_replaces_what_another_says_is_told(study, capsys):
    study.write_text(STUDY + '[grid.cap.small]\nmethod = { name = "heterofl" }\n')
    assert main(["sweep", str(study), "--dry-run", "--only", "method=fiarse"]) == 0
    assert capsys.readouterr().err == "warning: cap 'small' replaces method.name of method 'fiarse'\n"


def test_what_an_override_drops_of_the_base_is_told(study):
    study.write_text('base = "base.toml"\n[all]\nmethod = { name = "fedfibos", scope = "layer" }\n')
    assert load_study(study, ["method.name=fiarse"]).notes == (
        "method.name = 'fiarse' leaves behind what is set for the method before it: method.scope = 'layer'; "
        "to keep method.scope, set it on the command line too",
    )


def test_an_unknown_selection_names_the_nearest(study):
    with pytest.raises(ExperimentError, match=r"a selection of method must be .* got 'fiars'; did you mean 'fiarse'"):
        load_study(study, only=["method=fiars"])
    with pytest.raises(ExperimentError, match=r"^--only takes one axis, got 'method=fiarse,seed=0': give --only"):
        load_study(study, only=["method=fiarse,seed=0"])


def test_an_interrupted_sweep_goes_on_to_the_same_results(study, tmp_path):
    planned = load_study(study, only=["seed=1", "method=fiarse"])
    whole = run_study(planned, tmp_path / "whole", Log(), workers=1)
    log = Log(interrupt_at=(2, 1))
    with pytest.raises(Interrupted):
        run_study(planned, tmp_path / "broken", log, workers=1)
    assert log.finished == [("iid/fiarse/seed-1", "done")]
    log = Log()
    outcomes = run_study(planned, tmp_path / "broken", log, workers=1)
    assert log.started == [("few/fiarse/seed-1", True)]
    assert log.finished == [("iid/fiarse/seed-1", "finished"), ("few/fiarse/seed-1", "done")]
    assert [o.final["params_sha256"] for o in outcomes] == [o.final["params_sha256"] for o in whole]


def test_a_run_that_cannot_be_made_is_reported_and_the_next_one_begins(study, tmp_path, capsys):
    other = tmp_path / "out" / "iid" / "fiarse" / "seed-1"
    other.mkdir(parents=True)
    (other / "config.toml").write_text(small_experiment("federation.rounds = 4"))
    (other / "final.json").write_text("{}")
    code = main(["sweep", str(study), "--out", str(tmp_path / "out"), "--only", "seed=1", "--only", "method=fiarse"])
    out = capsys.readouterr().out
    assert code == 2
    wanted = (
        r"\[1/2\] iid/fiarse/seed-1: failed: .* holds another experiment: .*: choose another --out, or remove this "
        r"folder to run it anew"
    )
    assert re.search(wanted, out)
    assert re.search(r"\[2/2\] few/fiarse/seed-1: global [\d.]+ % \(submodels [\d.]+ %\)", out)
    assert re.search(r"iid +│ fiarse +│ +0 of 1 │ +– │", out)
    assert json.loads((other / "final.json").read_text()) == {}


def test_a_directory_of_another_version_fails_alone(study, tmp_path):
    planned = load_study(study, only=["seed=1", "method=fiarse"])
    old = tmp_path / "out" / "iid" / "fiarse" / "seed-1"
    old.mkdir(parents=True)
    (old / "config.toml").write_text(small_experiment("evaluation.every_other = 2"))
    (old / "final.json").write_text("{}")
    first, second = run_study(planned, tmp_path / "out", Log(), workers=1)
    assert (first.state, second.state) == ("failed", "done")
    assert "unknown key 'evaluation.every_other'" in first.reason


def test_ctrl_c_says_how_to_go_on(study, tmp_path, capsys, monkeypatch):
    def interrupted(*args, **options):
        raise Interrupted(2)

    monkeypatch.setattr("fedfibos.simulation.sweep.simulate", interrupted)
    code = main(
        ["sweep", str(study), "local.lr=0.1", "--out", str(tmp_path / "o"), "--only", "seed=1", "--workers", "1"]
    )
    assert code == INTERRUPTED
    wanted = f"go on with: fedfibos sweep {study} local.lr=0.1 --out {tmp_path / 'o'} --only seed=1 --workers 1"
    assert wanted in capsys.readouterr().err


def test_a_wrong_study_is_wrong_usage(study, capsys):
    assert main(["sweep", str(study), "local.lrr=1"]) == REFUSED
    assert "unknown key 'local.lrr'" in capsys.readouterr().err


def test_mean_and_sample_sd():
    assert spread([0.8, 0.9, None]) == Spread(pytest.approx(0.85), pytest.approx(0.0707107), 2)
    assert spread([0.812]) == Spread(0.812, None, 1)
    assert spread([None]) is None
    assert spread([0.8, 0.9]).text(100) == "85.0 ± 7.1"
    assert spread([0.8]).text(100) == "80.0 (n = 1)"


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_cell_of_the_studies_that_ship_loads(path):
    runs = load_study(path).runs
    tuning = {run.experiment.evaluation.validation > 0 for run in runs}
    assert tuning == {"tuning" in path.stem}  # hyperparameters are chosen on held-out training examples, one seed
    assert len({run.experiment.seed for run in runs}) >= (1 if True in tuning else 3)
    assert len({run.folder for run in runs}) == len(runs)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_paper_s_cells_at_the_paper_s_scale(name):
    runs = load_study(EXPERIMENTS / "paper" / f"{name}.toml", only=["seed=0"]).runs
    classes = {"cifar10": (5, 2), "cifar100": (50, 20)}[name]
    splits = {(p.scheme, p.classes_per_client if p.scheme == "pathological" else p.alpha) for p in partitions(runs)}
    assert splits == {("pathological", classes[0]), ("pathological", classes[1]), ("dirichlet", 0.3)}
    assert {tuple(run.experiment.federation.capacities.items()) for run in runs} == {
        tuple(UNIFORM.items()),
        tuple(NON_UNIFORM.items()),
    }
    for run in runs:
        federation = run.experiment.federation
        assert (federation.clients, federation.cohort, federation.rounds) == (100, 10, 800)
        assert (run.experiment.data.name, run.experiment.model.name) == (name, "resnet18")


def test_the_small_grid_is_the_paper_s_grid():
    paper = load_study(EXPERIMENTS / "paper" / "cifar10.toml").runs
    small = load_study(EXPERIMENTS / "small" / "cifar10.toml").runs
    assert [run.folder for run in small] == [run.folder for run in paper]
    assert partitions(small) == partitions(paper)
    assert {run.experiment.model.name for run in small} == {"lenet"}
    assert {(run.experiment.federation.clients, run.experiment.federation.cohort) for run in small} == {(100, 10)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["paper/cifar10", "paper/cifar100", "small/cifar10", "small/cifar100", "small/ag_news"]
)
def test_every_method_of_a_study_can_be_planned(name):
    folder = os.environ.get("FEDFIBOS_DATA")
    assert folder, "this test needs FEDFIBOS_DATA, the folder of the data sets"
    runs = load_study(EXPERIMENTS / f"{name}.toml", only=["seed=0", "mix=non-uniform"]).runs
    for run in {run.cell[-1]: run for run in runs}.values():
        world = build_world(run.experiment, device="cpu", data_dir=Path(folder), warn=lambda text: None)
        costs = [cost for _, cost in plan(world, run.experiment)]
        assert [cost.capacity for cost in costs] == [1.0, 0.5, 0.25, 0.125, 0.0625]
        for cost in costs:
            assert cost.share < cost.capacity + 1e-4
            assert cost.bytes_down > 0


@pytest.mark.parametrize(
    ("name", "variant", "kind"),
    [("paper/ag_news-head", "fiarse-head", "Roberta"), ("small/ag_news-readings", "fiarse-head", "Bert")],
)
def test_the_parts_that_fiarse_ranks_and_holds_are_the_encoder_s(tmp_path, name, variant, kind):
    """Names of an encoder with that architecture, built from its configuration: a name of no tensor is refused."""
    import transformers

    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    getattr(transformers, f"{kind}Config")(vocab_size=12, max_position_embeddings=8, **sizes).save_pretrained(tmp_path)
    runs = load_study(EXPERIMENTS / f"{name}.toml", only=[f"method={variant}", "seed=0"]).runs
    assert len(runs) == 2  # both mixes
    experiment = runs[0].experiment
    module = text_classifier(4, checkpoint=str(tmp_path), weights="random")
    names = maskable_names(module, experiment.model.held)
    model, method = model_of(module, maskable=names), experiment.build_method()
    params = model.initial_params()
    client = Client(0, 0.25, 0, 0, experiment.local)
    assert method.extract(model, method.init(params), params, client).num_held < model.layout.size
    alone = [part for part in names if part.startswith(method.groups)]
    assert [part.split(".")[-2] for part in alone] == ["word_embeddings", "position_embeddings"]
    assert all(".encoder." in part for part in set(names) - set(alone))


def partitions(runs):
    return [run.experiment.data.partition for run in runs]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=3", "a study's seeds are chosen with --only seed=..., got seed=..."),
        ("method.name=heterofl", "method.name is set by method 'fiarse' of the study"),
        ("method={name='fiarse'}", "method is set by method 'fiarse' of the study"),
        ("data.partition.alpha=0.5", None),
        ("data.partition={scheme='iid'}", "data.partition is set by split 'iid' of the study"),
        ("local.steps=2", None),
    ],
)
def test_an_override_of_what_tells_the_runs_apart_is_refused(study, override, message):
    if message is None:
        assert len(load_study(study, [override]).runs) == 8
        return
    with pytest.raises(ExperimentError) as error:
        load_study(study, [override])
    assert str(error.value) == f"command line: {message}"


def test_a_study_given_to_run_is_told_apart(tmp_path, capsys):
    (tmp_path / "study.toml").write_text('base = "base.toml"\nseeds = [0]\n')
    assert main(["run", str(tmp_path / "study.toml"), "--out", str(tmp_path / "run")]) == 2
    assert (
        "is a study (it has a grid or seeds), wanted an experiment: fedfibos sweep runs it" in capsys.readouterr().err
    )


def test_an_override_does_not_take_away_what_a_variant_sets(experiment_file, tmp_path):
    experiment_file(name="base.toml")
    (tmp_path / "study.toml").write_text(
        'base = "base.toml"\n[grid.budget.short]\nlocal.epochs = 1\n[grid.budget.long]\nlocal.epochs = 5\n'
        "[grid.rate.a]\nlocal.lr = 0.1\n[grid.rate.b]\nlocal.lr = 0.2\n"
    )
    with pytest.raises(ExperimentError, match=r"local\.steps=3 changes local\.epochs, which budget of the study sets"):
        load_study(tmp_path / "study.toml", ["local.steps=3"])
    runs = load_study(tmp_path / "study.toml", ["local.batch_size=7"]).runs
    assert [run.experiment.local.epochs for run in runs] == [1, 1, 5, 5]
