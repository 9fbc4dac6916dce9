"""A user's own model: what it may do, and what is said of one that cannot be trained."""

import json
import re

import pytest
import torch
from own_code import AUTOENCODER, BARE, OWN

from fedfibos.cli import main
from fedfibos.models import build


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("two_scores", "it must map 2 examples to logits of shape (2, 3), one a class, got (2, 2)"),
        ("tuples", "it must map 2 examples to logits of shape (2, 3), one a class, got tuple"),
        ("wrong_size", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_one_line_before_any_training(mine, capsys, model, message):
    (mine / "mine.toml").write_text(BARE)
    assert main(["run", "mine.toml", f"model.name=mine_of_the_test:{model}", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


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
        (
            ["model.name=mine_of_the_test:lazy_norm", "local.batch_size=1"],
            "local.batch_size = 1: the model has batch normalisation, which wants at least 2 examples",
        ),
        ("model.name=mine_of_the_test:double", "parameter 'weight' must be float32, got torch.float64"),
        (
            "data.name=mine_of_the_test:pairs",
            "a tensor or a dict of tensors, passed by name, got tuple",
        ),
        ("data.name=mine_of_the_test:lists", "a dict of tensors, passed by name, got list for 'x'"),
        (
            "data.name=mine_of_the_test:doubles",
            "; an example is float64 of shape (4,), parameters are float32: give the data set inputs.float()",
        ),
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
    overrides = [override] if isinstance(override, str) else override
    assert main([*OWN, "--dry-run", *settings, *overrides]) == 2
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


def test_layers_that_take_their_size_from_the_first_batch_get_it(mine, capsys):
    (mine / "mine.toml").write_text(BARE)
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
    (mine / "mine.toml").write_text(BARE)
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
    (mine / "mine.toml").write_text(BARE)
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
    keys = ("method", "capacity", "parameters", "share", "macs", "tensors", "memory", "bytes_down", "bytes_up")
    assert tuple(costs[1]) == keys
    assert (costs[1]["bytes_down"], costs[1]["bytes_up"]) == (4 * 22 + 6, 4 * 22)  # the mask: 43 bits
    assert main([*command, "--json", "--bytes-per-round", "0.2KiB", "--memory", "8GiB"]) == 0
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


def test_initial_values_of_an_own_model_come_from_the_seed(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    first, again, other = (build("mine_of_the_test:net", 3, (4,), seed=seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_models_own_methods_are_its_own(mine):
    """An encoder has a method of that name, which is none that encodes data sets."""
    (mine / "encoder_of_the_test.py").write_text(AUTOENCODER)
    run = ["run", "mine.toml", "model={name='encoder_of_the_test:Net'}", "--workers", "1"]
    assert main([*run, "method.name=heterofl", "--out", "run"]) == 0
    assert main(["export", "run", "--capacity", "0.5", "--out", "half.safetensors"]) == 0
