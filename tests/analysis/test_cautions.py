"""What is warned of before a fleet trains."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
import torch
from torch import nn

from fedfibos.analysis.cautions import cautions
from fedfibos.data import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.submodel import mask_from_scores
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

CAPACITIES = (1.0, 0.5, 0.125)


def said(method, several=False):
    model = model_of(build("cnn", 4, (1, 8, 8), seed=1), example=torch.zeros(2, 1, 8, 8))
    params = model.initial_params()
    clients = [Client(n, capacity, 0, 0, LocalTraining()) for n, capacity in enumerate(CAPACITIES * (1 + several))]
    return cautions(method, model, method.init(params), params, clients)


@dataclass(frozen=True)
class Greedy(METHODS["fiarse"]):
    """Takes twice its share."""

    def extract(self, model, state, params, client):
        scores = params.flat[: model.layout.num_maskable].abs()
        return mask_from_scores(scores, min(1.0, 2 * client.capacity), model.layout, "layer")


def test_a_method_that_takes_more_than_its_share_is_named():
    lines = [line for line in said(Greedy()) if "no comparison at equal capacity" in line]
    assert [line.partition(":")[0] for line in lines] == ["capacity 0.125", "capacity 0.5"]
    assert "maskable parameters" in lines[0]


SETTINGS = ({}, {"scope": "layer"}, {"rounding": "floor"}, {"capacity_basis": "width"})
OURS = [
    (name, settings)
    for name, method in METHODS.items()
    for settings in SETTINGS
    if name != "fedavg" and settings.keys() <= {field.name for field in fields(method)}
]


@pytest.mark.parametrize(("name", "settings"), OURS)
def test_no_method_of_ours_does(name, settings):
    assert not any("no comparison at equal capacity" in line for line in said(METHODS[name](**settings)))


@dataclass(frozen=True)
class Mistaken(METHODS["fiarse"]):
    """Says that masks are the same for all, and draws them for each."""

    def extract(self, model, state, params, client):
        scores = torch.rand(model.layout.num_maskable, generator=client.stream("mask"))
        return mask_from_scores(scores, client.capacity, model.layout)


def test_masks_that_follow_the_client_without_saying_so_are_named():
    (line,) = [line for line in said(Mistaken(), several=True) if "personal is False" in line]
    assert "clients 2 and 5 of capacity 0.125 hold different submodels" in line
    for method in METHODS.values():
        assert not any("personal is False" in line for line in said(method(), several=True))


def test_full_models_in_a_mixed_fleet_are_named():
    assert sum("no comparison at equal capacity" in line for line in said(METHODS["fedavg"]())) == 2


def test_letters_that_freeze_no_mask_are_named():
    frozen = METHODS["fedfibos"](fisher="literal", sharing="client", prior="magnitude")
    assert not any("freezes masks only" in line for line in said(frozen))
    for change in ({"sharing": "shared"}, {"prior": "none"}):
        assert any("freezes masks only" in line for line in said(replace(frozen, **change)))


class Sum(nn.Module):
    """Rows that are the sum of two parameters over its length: 0/0 where a mask leaves nothing of both."""

    def __init__(self):
        super().__init__()
        self.one, self.two = (nn.Parameter(torch.randn(16, 4)) for _ in range(2))

    def forward(self, x):
        rows = self.one + self.two
        return x @ (rows / rows.norm(dim=1, keepdim=True)).T


def test_outputs_that_are_no_numbers_are_named():
    layer = Sum()
    for rows in layer.parameters():
        rows.data[3:] *= 1e-3
    model = model_of(nn.Sequential(layer, nn.ReLU(), nn.Linear(16, 3)), example=torch.ones(2, 4))
    params, method = model.initial_params(), METHODS["fiarse"]()
    clients = [Client(n, capacity, 0, 0, LocalTraining()) for n, capacity in enumerate(CAPACITIES)]
    before = torch.get_rng_state()
    lines = [line for line in cautions(method, model, State(), params, clients) if "not finite" in line]
    assert lines == [
        f"capacity {capacity}: the outputs of the submodel are not finite from layer '0' on; "
        "hold it whole with model.held"
        for capacity in ("0.125", "0.5")
    ]
    assert not model._workspaces  # nothing is left where clients train
    assert torch.equal(torch.get_rng_state(), before)
    held = model_of(model.module, maskable=["2.weight", "2.bias"], example=model.example)
    assert not any("not finite" in line for line in cautions(method, held, State(), params, clients))


class Padded(nn.Module):
    """torch's encoder over padded texts: in evaluation its layers hand on nested tensors, which few operations take."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embed, self.layers, self.last = nn.Embedding(9, 8), nn.TransformerEncoder(layer, 1), nn.Linear(8, 3)

    def forward(self, ids):
        return self.last(self.layers(self.embed(ids), src_key_padding_mask=ids == 0)[:, 0])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_layers_that_hand_on_nested_tensors_are_no_fault():
    model = model_of(Padded(), example=torch.tensor([[1, 2, 3], [4, 0, 0]]))
    params, method = model.initial_params(), METHODS["fiarse"]()
    assert cautions(method, model, method.init(params), params, [Client(0, 0.9, 0, 0, LocalTraining())]) == []


def test_what_a_model_divides_by_is_said_to_be_held_whole():
    layers = [nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)) for _ in range(2)]
    model = model_of(nn.Sequential(layers[0], nn.Linear(8, 4), layers[1]), example=torch.ones(2, 4))
    params, method = model.initial_params(), METHODS["fiarse"]()
    clients = [Client(0, 0.5, 0, 0, LocalTraining())]
    assert cautions(method, model, method.init(params), params, clients)[0] == (
        "the model divides by parameter '0.parametrizations.weight.original1' and 1 more, or by a norm of it, so every "
        "client holds it whole: capacities choose from 68 of 132 parameters"
    )


class Mapped(nn.Module):
    """Calls its layers inside torch.vmap, where nobody may look at values."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x):
        return torch.vmap(lambda row: self.last(self.first(row).relu()))(x)


def test_a_model_of_mapped_functions_is_let_be():
    model, local = model_of(Mapped(), example=torch.randn(2, 5)), LocalTraining(steps=1, batch_size=2)
    data = TensorData(torch.randn(4, 5), torch.arange(4) % 3)
    method, params = METHODS["fedavg"](), model.initial_params()
    assert cautions(method, model, State(), params, [Client(0, 1.0, 0, 0, local, data)]) == []


def test_a_slice_that_leaves_a_norm_one_channel_is_named():
    """Of 4 channels a small client has 1, of 64 many; nothing is said of the whole model."""

    def told(width, name):
        module = nn.Sequential(nn.Linear(6, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 3))
        model, method = model_of(module, example=torch.randn(4, 6)), METHODS[name]()
        params = model.initial_params()
        fleet = [Client(n, capacity, 0, 0, LocalTraining()) for n, capacity in enumerate((1.0, 0.35))]
        return [line for line in cautions(method, model, method.init(params), params, fleet) if "normalis" in line]

    assert told(4, "heterofl") == [
        "capacity 0.35: layer '1' normalises over 1 value: all but signs is lost there, and nothing before it learns; "
        "use a larger capacity, a method of masks, or a norm that needs no other channels (batch)"
    ]
    assert told(64, "heterofl") == told(4, "fiarse") == []
