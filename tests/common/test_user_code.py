"""A user's own model and data in an experiment: found, used, recorded, and what cannot be is one line."""

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fedfibos.cli import main
from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.data import Split, TensorData, load
from fedfibos.data.partition import Partition, partition
from fedfibos.models import build
from fedfibos.simulation import build_world
from fedfibos.submodel import budget

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

MINE = (Path(__file__).parents[1] / "fixtures" / "users_code.py").read_text(encoding="utf-8")

EXPERIMENT = """
data.name = "mine_of_the_test:points"
model = { name = "mine_of_the_test:net", options = { hidden = 5 } }
method.name = "fedfibos"
federation = { clients = 4, cohort = 2, rounds = 2, capacities = { 1.0 = 0.5, 0.5 = 0.5 } }
local = { steps = 2, batch_size = 5 }
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a user's module and experiment, as the current one."""
    (tmp_path / "mine_of_the_test.py").write_text(MINE)
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # main() adds the current folder
    yield tmp_path
    sys.modules.pop("mine_of_the_test", None)


def test_a_run_with_both_from_the_current_folder_is_a_run_like_any_other(mine, capsys):
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    assert main(["run", "run", "--out", "again", "--workers", "2"]) == 0  # from its record, by two processes
    finals = [json.loads((mine / name / "final.json").read_text()) for name in ("run", "again")]
    assert finals[0]["params_sha256"] == finals[1]["params_sha256"]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    own = json.loads((mine / "run" / "environment.json").read_text())["own"]
    assert own == {"mine_of_the_test:points": digest, "mine_of_the_test:net": digest}
    assert main(["report", "run", "--out", "page.html"]) == 0
    assert "mine_of_the_test:net" in (mine / "page.html").read_text()
    assert main(["export", "run", "--capacity", "0.5", "--out", "half.safetensors"]) == 0
    capsys.readouterr()


def test_settings_are_written_out_as_far_as_toml_goes(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    experiment = load_experiment("mine.toml")
    assert experiment.model.options == {"hidden": 5}
    assert load_experiment("mine.toml", ["model.name=mine_of_the_test:net"]).model.options == {"hidden": 5}
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    text = to_toml(load_experiment("mine.toml"))
    assert "hidden = 6" in text
    assert "activation" not in text  # a class
    assert "norm" not in text.partition("[model]")[2].partition("[federation]")[0]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.name=mine_of_the_test:nets", "must have a function nets, it has none; did you mean 'net'"),
        ("model.name=mine_of_the_tes:net", "no module 'mine_of_the_tes' in the current folder or among what is"),
        ("model.name=mine_of_the_test:", "model.name must be a name of ours or 'module:function', such as"),
        ("model.name=mine_of_the_test.net", "or your own 'module:function', got 'mine_of_the_test.net'"),
        (
            "model.name=mine_of_the_test:narrow",
            "mine_of_the_test:narrow must take num_classes, it has no such parameter",
        ),
        ("model.name=mine_of_the_test:needs", "options.hidden is missing"),
        ("model.name=mine_of_the_test:NOT_A_FUNCTION", "must have a function NOT_A_FUNCTION, got 3"),
        ("model.options.hiden=3", "must take hiden, it has no such parameter; did you mean 'hidden'"),
        ("model.norm=batch", "command line: mine_of_the_test:net must take norm, it has no such parameter"),
        ("data.name=mine_of_the_test:pints", "did you mean 'points'"),
        ("model.name=3", "model.name must be one of .*, got 3"),
    ],
)
def test_one_line_errors_of_settings(mine, monkeypatch, override, message):
    monkeypatch.syspath_prepend(mine)
    if "options" not in override:
        (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    with pytest.raises(ExperimentError, match=message) as error:
        load_experiment("mine.toml", [override])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("plain", ""),
        ("anything", ", options = { width = 3 }"),
        ("several", ""),
        ("several", ", options = { hidden = [3] }"),
    ],
)
def test_the_record_of_any_model_is_loaded_as_it_was_without_its_code(mine, monkeypatch, model, options):
    (mine / "mine.toml").write_text(
        EXPERIMENT.replace("mine_of_the_test:net", f"mine_of_the_test:{model}").replace(
            ", options = { hidden = 5 }", options
        )
    )
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    experiment = load_experiment("mine.toml")
    assert ("hidden = [\n" in to_toml(experiment)) == (model == "several")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(mine)])
    sys.modules.pop("mine_of_the_test")
    (mine / "mine_of_the_test.py").unlink()
    assert to_toml(load_experiment("run")) == to_toml(experiment)
    assert main(["report", "run", "--out", "page.html"]) == 0


def test_what_goes_wrong_in_the_users_code_is_one_line_with_its_place(mine, monkeypatch, capsys):
    broken = ["run", "mine.toml", "--out", "run", "model.name=mine_of_the_test:broken"]
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    assert main(broken) == 2
    err = capsys.readouterr().err
    place = MINE.splitlines().index("    return 1 / 0") + 1
    assert err == (
        f"fedfibos: mine_of_the_test.py, line {place}: ZeroDivisionError: division by zero "
        "(in model.name = 'mine_of_the_test:broken')\n"
    )
    assert err.count("\n") == 1
    (mine / "not_python.py").write_text("def (")
    assert main([*broken[:-1], "model.name=not_python:net"]) == 2
    err = capsys.readouterr().err
    assert "SyntaxError: invalid syntax (not_python.py, line 1) (importing not_python for model.name" in err


def test_changed_code_is_warned_of_and_another_size_is_refused(mine, capsys):
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    (mine / "mine_of_the_test.py").write_text(MINE + "\n# a word\n")
    longer = ["run", "mine.toml", "--out", "run", "--workers", "1", "--resume", "federation.rounds=3"]
    assert main(longer) == 0
    assert "the file of mine_of_the_test:net has changed since run was last run" in capsys.readouterr().out
    (mine / "mine_of_the_test.py").write_text(MINE.replace("num_classes)", "num_classes, bias=False)"))
    sys.modules.pop("mine_of_the_test")
    before = (mine / "run" / "rounds.jsonl").read_bytes()
    assert main([*longer[:-1], "federation.rounds=4"]) == 2
    assert "is of a model of 43 parameters, got one of 40" in capsys.readouterr().err
    assert (mine / "run" / "rounds.jsonl").read_bytes() == before


def test_a_module_whose_import_is_missing_says_which(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    (mine / "mine_of_the_test_too.py").write_text("import no_such_library")
    with pytest.raises(ExperimentError, match="mine_of_the_test_too imports no_such_library, which is not installed"):
        load_experiment("mine.toml", ["data.name=mine_of_the_test_too:points"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("two_scores", "it must map 2 examples to logits of shape (2, 3), one a class, got (2, 2)"),
        ("tuples", "it must map 2 examples to logits of shape (2, 3), one a class, got tuple"),
        ("wrong_size", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_one_line_before_any_training(mine, capsys, model, message):
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    assert main(["run", "mine.toml", f"model.name=mine_of_the_test:{model}", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


OWN = ["run", "mine.toml", "--workers", "1", "--out", "run", "federation.rounds=1"]


@pytest.fixture
def bare(mine):
    """An experiment whose model takes no options."""
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    return mine


def test_a_buffer_that_training_changes_is_named(bare, capsys):
    """No client keeps it; batch normalisation's, which are recomputed, are not named."""
    assert main([*OWN, "model.name=mine_of_the_test:Centred"]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if "changes the buffer" in line]
    assert len(warnings) == 1
    assert "training changes the buffer 'mean' of the model, which no client keeps" in warnings[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.name=mine_of_the_test:scripted"], "it must give a plain nn.Module, got a scripted one"),
        (["model.name=mine_of_the_test:Locked"], "the module cannot be copied: cannot pickle '_thread.lock' object"),
        (
            ["model.name=mine_of_the_test:Sorted", "method.name=heterofl"],
            "slicing to capacity 0.5 needs a layer whose channels can be cut, the model has none (those of its inputs "
            "and of its logits stay; 'first' stays whole: the model itself reads them in their order (sort)); use a "
            "method of masks, or name them yourself",
        ),
        (
            ["model.name=mine_of_the_test:Gated", "method.fisher_from=per_example"],
            "gradients of single examples cannot be taken through this model",
        ),
    ],
)
def test_modules_that_cannot_be_used_are_one_line(bare, capsys, overrides, message):
    assert main([*OWN, *overrides]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.splitlines()[-1].startswith("fedfibos: ")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.name=mine_of_the_test:Closure", "goes on using parameter 'first.weight' of the module itself"),
        (
            "model.name=mine_of_the_test:Hooked",
            "mine_of_the_test.py, line 255: AttributeError: 'Hooked' object has no attribute 'seen', but the module "
            "itself does not: this is a copy",
        ),
        ("model.name=mine_of_the_test:Lookup", "gradients must be dense, got sparse ones of parameter 'signs.weight'"),
        (
            "model.name=mine_of_the_test:Two",
            "to logits of shape (2, 3), one a class, got tuple in training mode: return the logits alone",
        ),
        ("model.name=mine_of_the_test:batch_statistics", "batch normalisation without running statistics would be"),
        ("model.name=mine_of_the_test:double", "parameter 'weight' must be float32, got torch.float64"),
        (
            "data.name=mine_of_the_test:pairs",
            "a tensor or a dict of tensors, passed by name, got tuple",
        ),
        ("data.name=mine_of_the_test:lists", "a dict of tensors, passed by name, got list for 'x'"),
        ("data.name=mine_of_the_test:doubles", "; an example is float64 of shape (4,), parameters are float32"),
        (
            "data.name=mine_of_the_test:short_labels",
            "training labels must be int64 of shape (40,), one an example",
        ),
        ("data.name=mine_of_the_test:one", "it must have at least 2 training examples, got 1"),
        (
            "data.name=mine_of_the_test:bare_parts",
            "data set 'mine_of_the_test:bare_parts': subset of its training examples must give a data set again, got "
            "Tensor without labels",
        ),
        (
            "data.name=mine_of_the_test:broken_parts",
            "IndexError: no such shard (data set 'mine_of_the_test:broken_parts': subset of its training examples)",
        ),
        (
            "data.name=mine_of_the_test:wider_test",
            "a test example is float32 of shape (8,), a training example float32 of shape (4,) (in model.name",
        ),
    ],
)
def test_what_would_go_wrong_in_a_round_is_said_before_the_first(bare, capsys, override, message):
    settings = ["model.name=mine_of_the_test:logistic", "data.partition.scheme=iid"]
    assert main([*OWN, "--dry-run", *settings, override]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_model_that_draws_random_numbers_is_evaluated_alike_by_all(bare, capsys):
    """By one process or two, through an interruption or not; and its axes are derived."""
    run = ["run", "mine.toml", "model.name=mine_of_the_test:Drawing", "evaluation.every=1", "data.partition.scheme=iid"]
    found = []
    for workers in ("1", "2"):
        assert main([*run, "--workers", workers, "--out", f"run{workers}"]) == 0
        lines = (bare / f"run{workers}" / "rounds.jsonl").read_text().splitlines()
        found.append([json.loads(line)["evaluation"] for line in lines])
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_layers_of_normalisation_take_their_size_from_the_first_batch(bare, capsys):
    assert main([*OWN, "model.name=mine_of_the_test:lazy_norm"]) == 0


def test_a_recurrent_model_is_diagnosed_from_minibatches(bare, capsys):
    assert main([*OWN, "model.name=mine_of_the_test:Gated"]) == 0
    assert main(["diagnose", "run", "--clients", "1"]) == 0
    assert json.loads((bare / "run" / "diagnosis.json").read_text())["fisher_from"] == "minibatch"


def test_an_export_says_what_the_tracer_stumbled_over(bare, capsys):
    assert main([*OWN, "model.name=mine_of_the_test:Counting"]) == 0
    capsys.readouterr()
    assert main(["export", "run", "--capacity", "0.5", "--out", "a.pt2"]) == 2
    err = capsys.readouterr().err
    assert "x.shape[0] and not len(x)" in err
    assert err.count("\n") == 1
    assert main(["export", "run", "--capacity", "0.5", "--out", "a.safetensors"]) == 0


@pytest.mark.parametrize("command", [["evaluate"], ["export", "--capacity", "0.5", "--out", "a.safetensors"]])
def test_changed_code_is_said_wherever_a_run_is_opened(bare, capsys, command):
    assert main([*OWN, "model.name=mine_of_the_test:plain"]) == 0
    with (bare / "mine_of_the_test.py").open("a") as file:
        file.write("# another\n")
    capsys.readouterr()
    assert main([command[0], "run", *command[1:]]) == 0
    assert "the file of mine_of_the_test:plain has changed since run was last run" in capsys.readouterr().err


def test_code_beside_the_experiment_file_is_found_from_anywhere(mine, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["run", str(mine / "mine.toml"), "--dry-run"]) == 0


@pytest.mark.parametrize("package", ["", "inside/"])
def test_a_run_keeps_the_code_that_looking_at_it_takes(mine, tmp_path_factory, monkeypatch, capsys, package):
    """Also where the module lies in a package, and after the file itself has gone."""
    if package:
        (mine / "inside").mkdir()
        (mine / "mine_of_the_test.py").rename(mine / "inside" / "mine_of_the_test.py")
        text = (mine / "mine.toml").read_text().replace("mine_of_the_test:", "inside.mine_of_the_test:")
        (mine / "mine.toml").write_text(text)
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    assert (mine / "run" / "code" / f"{package}mine_of_the_test.py").read_text() == MINE
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (mine / "run").rename(elsewhere / "run")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(mine)])
    monkeypatch.chdir(elsewhere)
    for module in ("mine_of_the_test", "inside", "inside.mine_of_the_test"):
        sys.modules.pop(module, None)
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 0
    assert main(["export", "run", "--capacity", "0.5", "--out", "a.safetensors"]) == 0
    assert main(["run", "run", "--out", "again", "--workers", "1"]) == 0
    assert "warning" not in capsys.readouterr().err
    first, again = (json.loads((elsewhere / name / "final.json").read_text()) for name in ("run", "again"))
    assert first["params_sha256"] == again["params_sha256"]


def test_layers_that_take_their_size_from_the_first_batch_get_it(mine, capsys):
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    lazy = ["run", "mine.toml", "model.name=mine_of_the_test:lazy", "--workers", "1", "--out"]
    torch.manual_seed(1)  # of no account
    before = torch.get_rng_state()
    assert main([*lazy, "run"]) == 0
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert main([*lazy, "again"]) == 0
    first, again = (json.loads((mine / name / "final.json").read_text())["params_sha256"] for name in ("run", "again"))
    assert first == again


@pytest.mark.parametrize("method", ["heterofl", "fedrolex", "fedbrb"])
def test_a_model_whose_channels_cannot_be_derived_names_them(mine, capsys, method):
    """And each capacity's real share follows from the table."""
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    command = ["run", "mine.toml", f"method.name={method}", "method.scaler=false", "--workers", "1"]
    assert main([*command, "model.name=mine_of_the_test:Sorted", "--out", "derived"]) == 2
    assert "the model has none (those of its inputs and of its logits stay; 'first' " in capsys.readouterr().err
    assert main([*command, "model.name=mine_of_the_test:Named", "--out", "named"]) == 0


def test_costs_of_all_methods_on_an_experiment(mine, capsys):
    assert main(["methods", "mine.toml"]) == 0
    out = capsys.readouterr().out
    assert out.strip().startswith("mine_of_the_test:net on mine_of_the_test:points, 43 parameters")
    assert "algorithm1" not in out  # of an experiment nothing but its costs
    assert re.search(r"^heterofl +0\.5 +\d+ +4\d\.\d %", out, re.MULTILINE)
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    assert main(["methods", "mine.toml", "model.name=mine_of_the_test:Sorted"]) == 0
    assert "fedrolex: slicing to capacity 0.5 needs a layer whose channels can be cut, the model has none" in " ".join(
        capsys.readouterr().out.split()
    )


def test_costs_of_one_method_as_json_within_limits(mine, capsys):
    command = ["methods", "mine.toml", "method.name=fiarse"]
    assert main([*command, "--json"]) == 0
    costs = json.loads(capsys.readouterr().out)
    assert [(cost["method"], cost["capacity"], cost["parameters"]) for cost in costs] == [
        ("fiarse", 1.0, 43),
        ("fiarse", 0.5, 22),
    ]
    keys = ("method", "capacity", "parameters", "share", "macs", "memory", "bytes_down", "bytes_up")
    assert tuple(costs[1]) == keys
    assert (costs[1]["bytes_down"], costs[1]["bytes_up"]) == (4 * 22 + 6, 4 * 22)  # the mask: 43 bits
    assert main([*command, "--json", "--bytes-per-round", "0.2KiB", "--memory", "1MB"]) == 0
    assert json.loads(capsys.readouterr().out) == costs[1:]
    assert main([*command, "--json", "--memory=8"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main([*command, "--bytes-per-round", "0.2KiB"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^(\w+) +(yes|no) +([\d.]+) ", shown, re.MULTILINE) == [
        ("fiarse", "no", "1"),
        ("fiarse", "yes", "0.5"),
    ]
    assert main([*command, "--memory", "much"]) == 2
    message = "--memory: a number of bytes must be one such as 3000000, 3MB, 1.5GB or 512KiB, got 'much'"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_sweep_goes_on_after_a_model_that_fails(mine, capsys, workers):
    study = 'base = "mine.toml"\nseeds = [0]\n[grid.model.failing]\nmodel.name = "mine_of_the_test:Failing"\n'
    (mine / "study.toml").write_text(study + '[grid.model.plain]\nmodel.name = "mine_of_the_test:plain"\n')
    assert main(["sweep", "study.toml", "--out", "runs", "--workers", workers]) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"failing/seed-0: failed: mine_of_the_test.py, line \d+: RuntimeError: not today; in training", out
    )
    assert (mine / "runs" / "plain" / "seed-0" / "final.json").exists()


def test_a_sweep_does_not_count_runs_of_other_code(mine, capsys):
    """A seed of yesterday's version is no seed of today's, finished or not."""
    (mine / "study.toml").write_text('base = "mine.toml"\nseeds = [0, 1]\n')
    sweep = ["sweep", "study.toml", "--out", "runs", "--workers", "1"]
    assert main([*sweep, "--only", "seed=0"]) == 0
    assert main([*sweep, "--only", "seed=0"]) == 0
    (mine / "mine_of_the_test.py").write_text(MINE + "\n# another\n")
    capsys.readouterr()
    assert main(sweep) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert "seed-0: failed: runs/seed-0 is finished, by another version of mine_of_the_test:" in out
    assert (mine / "runs" / "seed-1" / "final.json").exists()


def test_runs_of_different_code_are_not_averaged(mine, capsys):
    assert main(["run", "mine.toml", "--out", "runs/0", "--workers", "1"]) == 0
    (mine / "mine_of_the_test.py").write_text(MINE + "\n# another\n")
    assert main(["run", "mine.toml", "seed=1", "--out", "runs/1", "--workers", "1"]) == 0
    assert main(["report", "runs", "--out", "page.html"]) == 0
    assert "2 results on 2 problems" in capsys.readouterr().out
    assert hashlib.sha256(MINE.encode()).hexdigest()[:8] in (mine / "page.html").read_text()


def test_what_the_functions_give_is_checked(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    with pytest.raises(ValueError, match=r"must give a fedfibos\.data.Split, got NoneType"):
        load("mine_of_the_test:nothing")
    with pytest.raises(
        ValueError, match=re.escape("'mine_of_the_test:unfit': it must give an nn.Module, got NoneType")
    ):
        build("mine_of_the_test:unfit", 3, (4,))
    assert load("mine_of_the_test:points").name == "mine_of_the_test:points"


def test_initial_values_of_an_own_model_come_from_the_seed(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    first, again, other = (build("mine_of_the_test:net", 3, (4,), seed=seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_method_of_ones_own_is_a_method_like_any_other(mine, monkeypatch, capsys):
    run = ["run", "mine.toml", "method.name=mine_of_the_test:Half", "method.part=0.25"]
    assert main([*run, "--out", "runs/own", "--workers", "2"]) == 0
    assert main(["run", "mine.toml", "method.name=fiarse", "--out", "runs/fiarse", "--workers", "1"]) == 0
    config = (mine / "runs" / "own" / "config.toml").read_text()
    assert 'name = "mine_of_the_test:Half"\npart = 0.25' in config
    environment = json.loads((mine / "runs" / "own" / "environment.json").read_text())
    assert environment["own"]["mine_of_the_test:Half"] == hashlib.sha256(MINE.encode()).hexdigest()
    rounds = (mine / "runs" / "own" / "rounds.jsonl").read_text().splitlines()
    d = 4 * 5 + 5 + 5 * 3 + 3
    sent = {1.0: budget(0.25, d), 0.5: budget(0.125, d)}
    assert json.loads(rounds[0])["bytes"]["up"] in {4 * (sent[a] + sent[b]) for a in sent for b in sent}
    assert main(["methods", "mine.toml", *run[2:]]) == 0
    assert main(["export", "runs/own", "--capacity", "0.5", "--out", "half.safetensors"]) == 0
    sys.modules.pop("mine_of_the_test")
    (mine / "mine_of_the_test.py").unlink()  # a report needs records alone
    capsys.readouterr()
    assert main(["report", "runs", "--out", "page.html"]) == 0
    assert "2 results on 1 problem" in capsys.readouterr().out  # compared with ours
    assert "Half, part = 0.25" in (mine / "page.html").read_text()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.name=mine_of_the_test:Hlf", r"must have a function Hlf, it has none; did you mean 'Half'"),
        (
            "method.name=mine_of_the_test:net",
            r"must be a dataclass with the verbs of a method, it lacks personal, init",
        ),
        ("method.name=mine_of_the_test:Unfinished", "it lacks init, extract, train, update, aggregate"),
        (
            "method.name=mine_of_the_test:Unwritable",
            "mine_of_the_test:Unwritable has settings that no file can hold: TypeError",
        ),
    ],
)
def test_one_line_errors_of_a_method(mine, monkeypatch, override, message):
    monkeypatch.syspath_prepend(mine)
    with pytest.raises(ExperimentError, match=message) as error:
        load_experiment("mine.toml", [override])
    assert "\n" not in str(error.value)


def test_settings_of_a_method_of_ones_own_are_checked(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    own = "method.name=mine_of_the_test:Half"
    for setting, message in (
        ("method.part=all", r"method\.part must be a number, got 'all'"),
        ("method.prat=0.1", "a setting of mine_of_the_test:Half must be 'part', got 'prat'; did you mean 'part'"),
        ("method.preset=best", "a method of your own has no presets, got 'best'"),
    ):
        with pytest.raises(ExperimentError, match=message):
            load_experiment("mine.toml", [own, setting])


def test_the_example_of_a_method_is_one(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(EXAMPLES.parent)
    example = ["run", str(EXAMPLES / "own_method.toml"), "federation.rounds=2"]
    assert main([*example, "--out", str(tmp_path / "run"), "--workers", "1"]) == 0
    assert "examples.own_method:Movement on digits" in capsys.readouterr().out


def test_the_example_in_the_examples_folder(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES.parent)
    world = build_world(load_experiment(EXAMPLES / "own_code.toml"), device="cpu", data_dir=None, warn=print)
    assert isinstance(world.model.module, nn.Module)
    assert world.split.classes == ("malignant", "benign")
    assert world.model.layout.size == 2 * (30 * 32 + 32) + 32 * 2 + 2


def tensors(labels):
    return TensorData(torch.zeros(len(labels), 2), torch.tensor(labels, dtype=torch.int64))


@pytest.mark.parametrize(
    ("train", "test", "owners", "message"),
    [
        ([0, 2], [0], None, "data set 'x': training labels must be in 0..1, positions among its classes, got 2"),
        ([0, 1], [-1], None, "data set 'x': test labels must be in 0..1, positions among its classes, got -1"),
        ([0, 1], [], None, "data set 'x': it must have test examples, got none"),
        (
            [0, 1],
            [0],
            [1],
            r"owners must be int64 of shape \(2,\), one a training example, got torch.int64 of shape \(1,\)",
        ),
    ],
)
def test_a_split_is_checked(train, test, owners, message):
    with pytest.raises(ValueError, match=message):
        Split(tensors(train), tensors(test), ("a", "b"), "x", None if owners is None else torch.tensor(owners))


def test_what_is_no_split_says_what_is_wanted():
    train = tensors([0, 1])
    with pytest.raises(ValueError, match="the data set: classes must be the names of the classes, got none"):
        Split(train, train, ())
    with pytest.raises(ValueError, match="classes must be the names of the classes, got 2"):
        Split(train, train, 2)
    with pytest.raises(ValueError, match=r"must be a fedfibos\.types\.Dataset, .* got list without labels, batch"):
        Split([1, 2], train, ("a", "b"))
    with pytest.raises(ValueError, match=r"owners must be int64 of shape .*, got list"):
        Split(train, train, ("a", "b"), owners=[0, 1])


def test_the_natural_partition_gives_every_owner_its_examples():
    owners = torch.tensor([7, 5, 7, 5, 5, 9])
    parts = partition(torch.zeros(6).long(), Partition("natural"), 3, torch.Generator(), owners)
    assert [part.tolist() for part in parts] == [[1, 3, 4], [0, 2], [5]]
    with pytest.raises(ValueError, match=r"federation\.clients must be at most 3, the number of owners, got 4"):
        partition(torch.zeros(6).long(), Partition("natural"), 4, torch.Generator(), owners)
    with pytest.raises(ValueError, match=r"must not be 'natural' for a data set that does not say whose"):
        partition(torch.zeros(6).long(), Partition("natural"), 3, torch.Generator())


def test_owners_stay_with_their_examples_when_some_are_held_out(mine, capsys):
    split = Split(tensors([0, 1, 0, 1, 0, 1]), tensors([0]), ("a", "b"), owners=torch.tensor([0, 1, 0, 1, 0, 1]))
    less = split.validation(1 / 3, torch.Generator().manual_seed(0))
    assert torch.equal(less.owners, less.train.labels)  # odd examples are owner 1's and of class 1
    owners = torch.arange(40) // 2
    few = Split(tensors([0, 1] * 20), tensors([0]), ("a", "b"), owners=owners)
    for seed in range(5):  # everybody keeps something, whatever is drawn
        assert len(few.validation(0.4, torch.Generator().manual_seed(seed)).owners.unique()) == 20
    natural = ["run", "mine.toml", "data.partition.scheme=natural", "--out", "run"]
    assert main([*natural, "federation.clients=3"]) == 0
    assert main([*natural[:-1], "other"]) == 2
    assert "federation.clients must be at most 3, the number of owners, got 4" in capsys.readouterr().err


def test_code_beside_the_experiment_goes_before_that_of_the_current_folder(mine):
    (mine / "sub").mkdir()
    (mine / "sub" / "mine.toml").write_text(EXPERIMENT)
    beside = MINE + "\n# another version\n"
    (mine / "sub" / "mine_of_the_test.py").write_text(beside)
    assert main(["run", "sub/mine.toml", "--out", "run", "--workers", "1"]) == 0
    assert (mine / "run" / "code" / "mine_of_the_test.py").read_text() == beside


def test_an_error_is_placed_in_the_users_file_and_not_in_the_library_that_it_called(mine, capsys):
    lines = MINE.count("\n")
    (mine / "mine_of_the_test.py").write_text(
        MINE + "\n\ndef wrong(num_classes, input_shape):\n    return torch.ones(2) @ torch.ones(3, 4)\n"
    )
    (mine / "mine.toml").write_text(EXPERIMENT.replace(", options = { hidden = 5 }", ""))
    assert main(["run", "mine.toml", "model.name=mine_of_the_test:wrong", "--out", "run"]) == 2
    assert f"fedfibos: mine_of_the_test.py, line {lines + 4}: " in capsys.readouterr().err
    (mine / "mine_of_the_test.py").write_text(
        MINE + "\n\ndef wrong(num_classes, input_shape):\n    return nn.Linear(-1, 2)\n"
    )
    sys.modules.pop("mine_of_the_test")
    assert main(["run", "mine.toml", "model.name=mine_of_the_test:wrong", "--out", "run"]) == 2
    assert f"fedfibos: mine_of_the_test.py, line {lines + 4}: " in capsys.readouterr().err


AUTOENCODER = """
from dataclasses import dataclass
from torch import nn
from fedfibos.methods.fiarse import FIARSE
class Net(nn.Module):
    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, num_classes)
    def encode(self, x):
        return self.first(x).relu()
    def units(self):
        return ["metres"]
    def forward(self, x):
        return self.last(self.encode(x))
@dataclass(frozen=True)
class Scored(FIARSE):
    importance: float = 0.5
"""


def test_a_models_own_methods_are_its_own(mine):
    """An encoder has a method of that name, which is none that encodes data sets."""
    (mine / "encoder_of_the_test.py").write_text(AUTOENCODER)
    run = ["run", "mine.toml", "model={name='encoder_of_the_test:Net'}", "--workers", "1"]
    assert main([*run, "method.name=heterofl", "--out", "run"]) == 0
    assert main(["export", "run", "--capacity", "0.5", "--out", "half.safetensors"]) == 0


def test_a_setting_may_not_be_named_as_a_verb(mine, capsys):
    (mine / "encoder_of_the_test.py").write_text(AUTOENCODER)
    assert main(["run", "mine.toml", "method.name=encoder_of_the_test:Scored", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "encoder_of_the_test:Scored has a setting 'importance', which methods are asked for as a verb" in said
