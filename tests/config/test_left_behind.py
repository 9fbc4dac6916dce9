"""Settings of a file that a choice on the command line drops are said, with what of them could be kept."""

import pytest

from fedfibos.cli.app import main
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.config.left_behind import left_behind

FILE = """
data = {{ name = "digits", partition = {{ scheme = "{scheme}", {partition} }} }}
model = {{ name = "mlp", options.hidden = [16] }}
method = {{ name = "fedfibos", {method} }}
federation = {{ clients = 4, cohort = 2, rounds = 1, capacities = {{ "1.0" = 0.5, "0.5" = 0.5 }} }}
"""


@pytest.fixture
def lines(tmp_path):
    def of(*overrides, method='criterion = "saliency", scope = "layer"', scheme="dirichlet", partition="alpha = 0.1"):
        path = tmp_path / "e.toml"
        path.write_text(FILE.format(method=method, scheme=scheme, partition=partition))
        return left_behind(path, overrides, load_experiment(path, overrides))

    return of


def test_another_method_says_which_settings_it_drops_and_which_of_them_it_has(lines):
    assert lines("method.name=fiarse") == [
        "method.name = 'fiarse' leaves behind what is set for the method before it: method.criterion = 'saliency', "
        "method.scope = 'layer'; to keep method.scope, set it on the command line too"
    ]
    assert lines("method.name=heterofl") == [
        "method.name = 'heterofl' leaves behind what is set for the method before it: method.criterion = 'saliency', "
        "method.scope = 'layer'"
    ]


@pytest.mark.parametrize(
    ("overrides", "settings"),
    [
        (("method.name=fedfibos",), {}),
        (("local.lr=1",), {}),
        (("method.name=fiarse", "method.scope=layer"), {"method": 'scope = "layer"'}),
        (("method.name=fiarse",), {"method": 'scope = "global", criterion = "fisher"'}),
        (("data.partition.scheme=iid",), {}),
        (("data.partition.scheme=quantity", "data.partition.alpha=3"), {}),
        (("data.partition.scheme=quantity",), {"partition": "alpha = 0.3"}),
    ],
)
def test_nothing_is_said_where_nothing_is_lost(lines, overrides, settings):
    assert lines(*overrides, **settings) == []


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ("method.preset=recommended",),
            "method.preset = 'recommended' leaves behind what is set for the preset before it: method.scope = 'layer'; "
            "to keep method.scope, set it on the command line too",
        ),
        (
            ("data.partition.scheme=quantity",),
            "data.partition.scheme = 'quantity' leaves behind what is set for the scheme before it: "
            "data.partition.alpha = 0.1; to keep data.partition.alpha, set it on the command line too",
        ),
        (
            ("model.name=resnet8",),
            "model.name = 'resnet8' leaves behind what is set for the model before it: model.options.hidden = [16]",
        ),
    ],
)
def test_every_choice_says_it(lines, overrides, line):
    assert lines(*overrides) == [line]


def test_the_command_says_it_before_anything_else(tmp_path, capsys):
    path = tmp_path / "e.toml"
    path.write_text(FILE.format(method='scope = "layer"', scheme="dirichlet", partition="alpha = 0.1"))
    assert main(["axes", str(path), "method.name=fiarse"]) == 0
    assert capsys.readouterr().err.startswith(
        "warning: method.name = 'fiarse' leaves behind what is set for the method"
    )


def test_a_run_directory_names_only_what_differs_from_the_defaults(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(FILE.format(method='prior = "magnitude"', scheme="dirichlet", partition="alpha = 0.1"))
    (tmp_path / "config.toml").write_text(to_toml(load_experiment(path)))
    overrides = ["method.name=fedfibos-channels", "data.partition.scheme=iid"]
    assert left_behind(tmp_path, overrides, load_experiment(tmp_path, overrides)) == [
        "method.name = 'fedfibos-channels' leaves behind what is set for the method before it: "
        "method.prior = 'magnitude'"
    ]


def test_of_a_method_of_ones_own_nothing_is_known(tmp_path, monkeypatch):
    (tmp_path / "mine_left.py").write_text("from fedfibos.methods import FedAvg as Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "e.toml"
    path.write_text(FILE.format(method='scope = "layer"', scheme="iid", partition="alpha = 0.3"))
    overrides = ["method.name=mine_left:Mine"]
    assert left_behind(path, overrides, load_experiment(path, overrides)) == [
        "method.name = 'mine_left:Mine' leaves behind what is set for the method before it: method.scope = 'layer'"
    ]
