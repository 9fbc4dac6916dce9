"""``model.held``: parts that every client holds whole, beside the normalisation layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.flower import task_of
from fedfibos.methods._slicing import _has_cut_outputs
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.params import layout_of, maskable_names
from fedfibos.simulation import build_world, simulate
from fedfibos.submodel import budget


def mlp() -> nn.Module:
    return build("mlp", 4, (1, 8, 8), seed=1, hidden=(16,))


def test_a_held_module_is_behind_the_ranked_coordinates_and_not_counted():
    layout = layout_of(mlp(), maskable_names(mlp(), ["classifier"]))
    assert layout.names == ("features.1.weight", "features.1.bias", "classifier.weight", "classifier.bias")
    assert layout.num_maskable == 16 * 64 + 16
    assert layout.size == layout.num_maskable + 4 * 16 + 4


def test_one_parameter_can_be_held_and_a_module_s_name_ends_at_a_dot():
    assert maskable_names(mlp(), ["features.1.bias", "classifier"]) == ["features.1.weight"]
    with pytest.raises(ValueError, match=r"got 'classif'; did you mean 'classifier'\?"):
        maskable_names(mlp(), ["classif"])


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (["head"], "model.held must name trainable parts of the model, got 'head'"),
        (["features", "classifier"], "held must leave parameters for the capacities to choose from"),
    ],
)
def test_wrong_names_are_one_line(held, message):
    with pytest.raises(ValueError, match=message):
        maskable_names(mlp(), held)


class Tied(nn.Module):
    """A head that has the embedding's weight, and a bias of its own."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)
        self.head.weight = self.table.weight
        self.inner = nn.Linear(4, 4)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_a_tied_tensor_is_held_by_any_of_its_names():
    assert maskable_names(Tied(), ["head"]) == ["inner.weight", "inner.bias"]
    assert maskable_names(Tied(), ["table"]) == ["head.bias", "inner.weight", "inner.bias"]


def test_a_frozen_part_is_no_suggestion_of_itself():
    with pytest.raises(ValueError, match=r"got 'frozen'$"):
        maskable_names(Tied(), ["frozen"])


def test_the_scaler_scales_a_held_layer_whose_outputs_are_cut():
    module = build("mlp", 4, (1, 8, 8), seed=1, hidden=(16, 16))
    model = model_of(module, maskable=maskable_names(module, ["features.3"]), example=torch.zeros(2, 1, 8, 8))
    scaled = dict(zip(model.layout.names, _has_cut_outputs(model), strict=True))
    assert scaled == {name: not name.startswith("classifier") for name in model.layout.names}


@pytest.fixture
def toml(experiment_file):
    """A layer of 16 units, and a capacity that is too small for a part of every layer."""
    return experiment_file("model.options.hidden = [16]\nfederation.capacities = { 0.5 = 0.5, 0.002 = 0.5 }")


def test_a_held_layer_is_never_dead(toml, tmp_path):
    warnings: dict[bool, list[str]] = {}
    for held in (False, True):
        overrides = ['model.held=["features.1"]'] if held else []
        experiment = load_experiment(toml, overrides)
        simulate(experiment, tmp_path / str(held), workers=1, on_warning=warnings.setdefault(held, []).append)
    dead = {held: [w for w in lines if "holds nothing of layer 'features" in w] for held, lines in warnings.items()}
    assert dead[False]
    assert not dead[True]


def test_budgets_count_what_is_ranked(toml):
    experiment = load_experiment(toml, ['model.held=["classifier"]'])
    assert load_experiment(toml) != experiment
    assert 'held = [\n    "classifier",\n]' in to_toml(experiment)
    model = build_world(experiment, device="cpu", data_dir=None, warn=print).model
    assert model.layout.num_maskable == 64 * 16 + 16
    assert budget(0.002, model.layout.num_maskable) == 3


def test_a_flower_app_can_hold_parts_too():
    config = {"method.name": "fedfibos", "federation.rounds": 1, "federation.cohort": 1, "local.lr": 0.1}
    task = task_of(mlp(), config, held=["classifier"])
    assert task.model.layout == layout_of(mlp(), maskable_names(mlp(), ["classifier"]))
    assert 'held = [\n    "classifier",\n]' in task.settings


class Heads(nn.Module):
    """Two heads of four channels, which only this class knows of."""

    def __init__(self):
        super().__init__()
        self.project, self.classifier = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.classifier(self.project(x).unflatten(1, (-1, 4)).tanh().flatten(1))

    def channel_units(self):
        return {"project": 4}


def test_both_engines_ask_the_module_which_channels_belong_together():
    example = torch.zeros(2, 6)
    config = {"method.name": "heterofl", "federation.rounds": 1, "federation.cohort": 1, "local.lr": 0.1}
    for model in (model_of(Heads(), example=example), task_of(Heads(), config, example=example).model):
        assert model.units == {"project": 4}
        assert model.axes.sizes["project"] == 2


class Numbered(nn.Module):
    """An attribute that only happens to be called as what a module says of its channels."""

    units, channel_axes = 4, None

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(6, 3)

    def forward(self, x):
        return self.classifier(x)


def test_an_attribute_called_units_is_no_method():
    model = model_of(Numbered(), example=torch.zeros(2, 6))
    assert model.units == {}
    assert model.table is None
