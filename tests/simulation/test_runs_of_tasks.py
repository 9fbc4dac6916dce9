"""Runs of other tasks than classification: what they record, and what is refused before the first round."""

from __future__ import annotations

import json
import tomllib

import pytest

from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.runs.files import CODE
from fedfibos.simulation import build_world, simulate

CODE_TEXT = """
import torch
from torch import nn
from fedfibos import Split, TensorData
from fedfibos.tasks import Metric, Task


def numbers(folder):
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    targets = inputs @ torch.tensor([1.0, -1.0, 0.5, 0.0])
    return Split(TensorData(inputs[:40], targets[:40]), TensorData(inputs[40:], targets[40:]))


def net(num_classes, input_shape):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, num_classes))


def apart(outputs, targets):
    return (outputs.squeeze(1) - targets).abs()


def mean_apart(outputs, targets):
    return apart(outputs, targets).mean()


value = Task(mean_apart, apart, (Metric("distance", "lower", torch.mean),))


def made(power=1.0):
    def loss(outputs, targets):
        return apart(outputs, targets).pow(power).mean()

    return Task(loss, apart, (Metric("distance", "lower", torch.mean),))


def broken(outputs, targets):
    return outputs.no_such_thing


faulty = Task(broken, apart, (Metric("distance", "lower", torch.mean),))


def nothing():
    return 3


def halves(targets, num_clients, generator):
    return [range(n, len(targets), num_clients) for n in range(num_clients)]


def all_of_them(targets, num_clients, generator):
    return [range(len(targets))] * num_clients


def one_is_empty(targets, num_clients, generator):
    return [[n] for n in range(num_clients - 1)] + [[]]
"""


@pytest.fixture
def experiment(experiment_file, tmp_path, monkeypatch):
    """A function that loads the experiment with some overrides, in a folder with the user's code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(CODE_TEXT)
    toml = experiment_file("""
        data = { name = "mine:numbers", partition.scheme = "iid" }
        task.name = "regression"
        method.name = "heterofl"
        federation.clients = 4
        evaluation.every = 1
    """)
    monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
    return lambda *overrides: load_experiment(toml, overrides)


def test_a_record_says_what_its_metrics_are_and_which_way_is_better(experiment, tmp_path):
    final = simulate(experiment(), tmp_path / "run", workers=1)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert list(final["metrics"]) == ["mse", "mae", "r2"]
    assert final["metrics"]["mse"] == {"better": "lower", "share": False}
    values = [line["evaluation"]["global"]["full"] for line in lines]
    assert final["global_mse"]["full"] == {"last": values[-1], "last20": sum(values) / 2, "best": min(values)}
    assert final["local_mse"].keys() == {"mean", "by_capacity"}
    assert final["r2"]["full"]["best"] == max(line["evaluation"]["r2"]["full"] for line in lines)
    assert not {"majority_share", "global_accuracy", "local_accuracy"} & final.keys()


def test_the_task_stands_in_a_run_s_settings_unless_it_is_plain_classification(experiment):
    assert tomllib.loads(to_toml(experiment()))["task"] == {"name": "regression", "loss": "mse", "delta": 1.0}
    plain = to_toml(experiment("task.name=classification"))
    assert "task" not in tomllib.loads(plain)
    smoothed = tomllib.loads(to_toml(experiment("task.name=classification", "task.label_smoothing=0.1")))
    assert smoothed["task"]["label_smoothing"] == 0.1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("task.name=classification",), "task.name = 'classification': the data set must name its classes"),
        (("task.name=segmentation",), "task.name = 'segmentation': the data set must name its classes"),
        (("task.name=language-modelling",), "task.name = 'language-modelling': data set 'mine:numbers', training"),
        (("data.partition.scheme=dirichlet",), "data.partition.scheme = 'dirichlet' deals by class, the targets"),
        (("local.absent_labels=mask",), "local.absent_labels = 'mask' is about classes that a client has no"),
        (("data.name=digits", "model={name='mine:net'}"), "model.name = 'mine:net'"),
        (("task.name=mine:faulty",), "mine.py, line 37: AttributeError: 'Tensor' object has no attribute"),
        (("task.name=mine:nothing",), "task.name = 'mine:nothing': it must be or give a fedfibos.tasks.Task, got int"),
        (("data.partition.scheme=mine:all_of_them",), "every example must go to one client at most, got 0 more than"),
        (("data.partition.scheme=mine:one_is_empty",), "client 3 must have positions, whole numbers and at least one"),
        (("data.partition.scheme=quantity", "data.partition.min_size=11"), "min_size = 11 for each of 4 clients must"),
    ],
)
def test_a_wrong_combination_is_one_line_before_the_first_round(experiment, overrides, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build_world(experiment(*overrides))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("task.name=regresion",), "did you mean 'regression'"),
        (("task.los=mae",), "unknown key 'task.los'; did you mean 'task.loss'?"),
        (("task.loss=l2",), "task.loss"),
        (("task.name=mine:valeu",), "mine must have a Task or a function valeu, it has none; did you mean 'value'?"),
        (("task.name=mine:value", "task.power=2"), "mine:value is a value and has no settings, got power"),
    ],
)
def test_a_wrong_setting_of_a_task_is_refused_where_it_is_written(experiment, overrides, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        experiment(*overrides)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("overrides", [("task.name=mine:value",), ("task.name=mine:made", "task.power=1.0")])
def test_a_task_of_one_s_own_is_a_value_or_a_function(experiment, tmp_path, overrides):
    final = simulate(experiment(*overrides), tmp_path / "run", workers=1)
    assert list(final["metrics"]) == ["distance"]
    assert final["global_distance"]["full"]["last"] > 0
    assert (tmp_path / "run" / CODE / "mine.py").read_text() == CODE_TEXT
    again = simulate(experiment(*overrides), tmp_path / "again", workers=2)
    assert again["params_sha256"] == final["params_sha256"]


def test_examples_are_dealt_by_quantity_or_by_a_function_of_one_s_own(experiment):
    sizes = [build_world(experiment("data.partition.scheme=quantity", "data.partition.min_size=2", f"seed={n}"))
             .population.parts.sizes().tolist() for n in (0, 0, 1)]  # fmt: skip
    assert sizes[0] == sizes[1] != sizes[2]
    assert all(sum(of) == 40 and min(of) >= 2 and len(set(of)) > 1 for of in sizes)
    world = build_world(experiment("data.partition.scheme=mine:halves"))
    assert world.population.parts[1].tolist() == list(range(1, 40, 4))
    own = [part.tolist() for part in world.population.test_parts]
    assert sorted(n for part in own for n in part) == list(range(20))
    assert [len(part) for part in own] == [5, 5, 5, 5]


def test_every_command_follows_the_task_or_says_that_it_does_not_apply(experiment, tmp_path, capsys):
    simulate(experiment("evaluation.every=2"), tmp_path / "run", workers=1)
    run = str(tmp_path / "run")
    assert main(["evaluate", run]) == 0
    assert "heterofl, seed 0, after round 2" in capsys.readouterr().out
    assert main(["audit", run]) == 2
    assert "audit compares ways to measure accuracy, class by class: task 'regression' has none" in (
        capsys.readouterr().err
    )
    assert main(["data", "--show", str(tmp_path / "experiment.toml")]) == 0
    assert "a client has (least, median, most): 10, 10, 10 examples" in capsys.readouterr().out
    assert main(["run", str(tmp_path / "experiment.toml"), "--dry-run"]) == 0
    assert main(["report", run, "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "Mean squared error (lower is better), last evaluation" in page
    assert main(["export", run, "--out", str(tmp_path / "model.safetensors"), "--capacity", "0.5"]) == 0
