"""Every setting is explained, and a setting that changes nothing is said to."""

import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest

from fedfibos.cli import main
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.config.idle import RULES, idle
from fedfibos.config.settings import groups
from fedfibos.config.study import load_study
from fedfibos.methods import IDLE, METHODS
from fedfibos.models import MODELS

ROOT = Path(__file__).resolve().parents[2]

ESTIMATING = "one of 'fisher', 'ssp', 'saliency', 'power'"


def test_what_is_explained_is_what_a_config_holds(experiment_file):
    """The keys of every method and model, no more and no fewer, in the order of the file."""
    explained = {group.title: [setting.key for setting in group.settings] for group in groups()}
    for method in METHODS:
        assert explained[f"method {method}"] == [
            f"method.{field.name}" for field in dataclasses.fields(METHODS[method])
        ]
    for model in MODELS:
        assert all(key.startswith("model.options.") for key in explained[f"model.options of {model}"])
    sections = re.findall(r"^\[(\w+)\]$", to_toml(load_experiment(experiment_file())), re.MULTILINE)
    assert [title for title in explained if title in sections] == sections
    names = ("checkpoint_every", "score_home", "score_bytes", "log", "client_records", "cuda_graphs")
    assert explained["run"] == [f"run.{name}" for name in names]
    assert all(setting.meaning and setting.values for group in groups() for setting in group.settings)


def test_defaults_and_values_are_those_of_the_definitions():
    settings = {(group.title, setting.key): setting for group in groups() for setting in group.settings}
    assert settings["local", "local.lr"].default == "0.05"
    assert settings["local", "local.schedule"].values == '"constant", "cosine", "milestones"'
    assert settings["local", "local.steps"].default == "not set"
    assert settings["federation", "federation.clients"].default == "required"
    assert settings["federation", "federation.clients"].values == "integer, at least 1"
    assert settings["evaluation", "evaluation.validation"].values == "number, at least 0, below 1"
    assert settings["model", "model.name"].values.startswith('"mlp", "cnn"')
    assert settings["model.options of mlp", "model.options.hidden"].default == "[200, 200]"
    assert "eighted" not in settings["method fedfibos", "method.blend"].meaning
    assert settings["method fedfibos", "method.blend"].meaning == "β in [0, 1], the client's part in a blend."


def test_the_page_is_current():
    spec = importlib.util.spec_from_file_location("tools_settings", ROOT / "tools" / "settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (ROOT / "docs" / "reference" / "settings.md").read_text()


def test_the_command_finds_by_key_and_by_section(capsys):
    assert main(["settings", "blend_of"]) == 0
    out = capsys.readouterr().out
    assert 'method.blend_of  (default "scores"; "scores", "budget")' in out
    assert "method.sharing" not in out
    assert main(["settings", "evaluation"]) == 0
    assert "evaluation.every  (default 10; integer, at least 1)" in capsys.readouterr().out
    for word, title, key in (
        ("method.fiarse", "method fiarse", "method.scope "),
        ("method.fiarse.scope", "method fiarse", "method.scope "),
        ("model.options.cnn", "model.options of cnn", "model.options.channels "),
    ):
        assert main(["settings", word]) == 0
        out = capsys.readouterr().out
        assert title in out
        assert key in out
        assert "method.sharing" not in out
    assert main(["settings", "momentun"]) == 2
    assert capsys.readouterr().err == (
        "fedfibos: a word of a setting's key or section is wanted, got 'momentun'; did you mean 'momentum'?\n"
    )


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        ([], []),
        (["local.levels=[0.5]"], ["local.levels = [0.5] has no effect without local.nested above 0"]),
        (
            ["local.nested_rule=sandwich", "local.distill=0.5"],
            [
                "local.nested_rule = 'sandwich' has no effect without local.nested above 0",
                "local.distill = 0.5 has no effect without local.nested above 0",
            ],
        ),
        (
            ["local.nested=0.5", "local.levels=[1.0]"],
            ["local.nested = 0.5 has no effect: local.levels = [1] has no capacity below 1, the largest"],
        ),
        (
            ["local.nested=0.5", 'federation.capacities={"0.5"=1}'],
            ["local.nested = 0.5 has no effect: the fleet has no capacity below 0.5, the largest"],
        ),
        (["local.nested=0.5", "local.levels=[0.25]"], []),
        (["method.blend=0.5"], ["method.blend = 0.5 has no effect without method.sharing = 'blend'"]),
        (["method.blend=0.5", "method.sharing=blend"], []),
        (
            ["local.optimizer=adamw", "local.momentum=0.9"],
            ["local.momentum = 0.9 has no effect without local.optimizer = 'sgd'"],
        ),
        (
            ["data.partition.scheme=pathological", "data.partition.alpha=0.1"],
            ["data.partition.alpha = 0.1 has no effect without data.partition.scheme = one of 'dirichlet', "
             "'dirichlet-by-class', 'quantity'"],
        ),
        (["method.fisher=literal", "method.dense_every=5"], []),
        (
            ["method.criterion=magnitude", "method.dense_every=4"],
            ["method.dense_every = 4 has no effect without method.criterion = " + ESTIMATING],
        ),
        (
            ["method.fisher=dense", "method.criterion=magnitude"],
            ["method.fisher = 'dense' has no effect without method.criterion = " + ESTIMATING],
        ),
        (["data.partition.scheme=iid"], []),  # the fields are at their defaults: nobody set them
        (
            ["local.milestones=[3]", "method.criterion=random", "method.ema_rate=0.9"],
            [
                "local.milestones = [3] has no effect without local.schedule = 'milestones'",
                "method.ema_rate = 0.9 has no effect without method.criterion = " + ESTIMATING,
            ],
        ),
    ],
)  # fmt: skip
def test_a_setting_without_effect_is_named(experiment_file, overrides, lines):
    assert idle(load_experiment(experiment_file(), overrides)) == lines


def test_the_rules_name_settings_that_exist():
    keys = {setting.key for group in groups() for setting in group.settings}
    for idle_keys, decides, _ in RULES:
        assert {*idle_keys, decides} <= keys
    for method, rules in IDLE.items():
        for names, decides, _ in rules:
            assert {*names, decides} <= {field.name for field in dataclasses.fields(METHODS[method])}


@pytest.mark.parametrize(
    "study", sorted(ROOT.glob("experiments/*/*.toml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_no_experiment_of_ours_sets_what_has_no_effect(study):
    text = study.read_text()
    if "[grid" in text or "study = " in text:
        experiments = [cell.experiment for cell in load_study(study).runs]
    elif "[federation]" in text or "base = " in text:
        experiments = [load_experiment(study)]
    else:
        pytest.fail("no experiment and no study")
    assert [line for experiment in experiments for line in idle(experiment)] == []
