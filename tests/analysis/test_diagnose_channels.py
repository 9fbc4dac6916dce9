"""Selections of channels: surrogate, what leaving out really costs, and how often one orders the other."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from fedfibos.analysis.diagnose_channels import diagnose_channels, holds_channels
from fedfibos.analysis.gates import gate_fisher
from fedfibos.cli import main
from fedfibos.data.images import TensorData
from fedfibos.methods import FIARSE, FedFIbOSChannels, HeteroFL
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.training import LocalTraining
from fedfibos.types import Client


def client(inputs, labels, capacity=1.0):
    return Client(0, capacity, 0, 0, LocalTraining(), TensorData(inputs, labels))


def two_units():
    """y = (3·relu(x), 0) from two hidden units, the first of which alone counts."""
    module = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0], [1.0]]))
        module[2].weight.copy_(torch.tensor([[0.0, 3.0], [0.0, 0.0]]))
    return model_of(module, example=torch.ones(2, 1))


def test_by_hand():
    """Logits (3, 0), and (0, 0) without the second unit; label 0."""
    model = two_units()
    params = model.initial_params()
    who = client(torch.ones(2, 1), torch.zeros(2, dtype=torch.int64))
    found = diagnose_channels(
        HeteroFL(), model, HeteroFL().init(params), params, [who], [0.5], torch.Generator().manual_seed(0)
    )["0.5"]
    p = 1 / (1 + torch.tensor(3.0, dtype=torch.float64).neg().exp())  # of class 0
    fisher = float((3 * (1 - p)) ** 2)
    assert gate_fisher(model, params, who.data).tolist() == pytest.approx([0.0, fisher])
    prefix, best = found["selections"]["prefix"], found["selections"]["fisher"]
    assert prefix["surrogate"]["mean"] == pytest.approx(fisher / 2)
    assert prefix["error"]["mean"] == pytest.approx(float(torch.log(2 * p)))
    entropy = float(-(p * p.log() + (1 - p) * (1 - p).log()))
    assert prefix["divergence"]["mean"] == pytest.approx(float(torch.log(torch.tensor(2.0))) - entropy)
    assert (best["surrogate"]["mean"], best["error"]["mean"], best["divergence"]["mean"]) == (0.0, 0.0, 0.0)
    assert found["selections"]["method"] == prefix
    assert best["held"]["mean"] == 1.0
    assert found["order_agreement"] == {
        "error": {"mean": 1.0, "sd": None, "n": 1},
        "divergence": {"mean": 1.0, "sd": None, "n": 1},
    }


def test_the_fisher_chain_has_the_least_surrogate_of_all():
    generator = torch.Generator().manual_seed(1)
    model = model_of(build("lenet", 4, (1, 8, 8), seed=1, channels=(4, 8), hidden=12), example=torch.zeros(2, 1, 8, 8))
    params = model.initial_params()
    who = client(torch.randn(12, 1, 8, 8, generator=generator), torch.arange(12) % 4)
    method = FedFIbOSChannels()
    found = diagnose_channels(method, model, method.init(params), params, [who], [0.5, 0.25], generator)
    for of in found.values():
        surrogates = {name: numbers["surrogate"]["mean"] for name, numbers in of["selections"].items()}
        assert list(surrogates) == ["method", "fisher", "magnitude", "prefix", "random"]
        assert min(surrogates, key=surrogates.get) == "fisher"
        assert all(numbers["divergence"]["mean"] >= 0 for numbers in of["selections"].values())
        assert 0 <= of["order_agreement"]["divergence"]["mean"] <= 1


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_residual_network_with_normalisation(norm):
    """With batch norm, too, nothing rises where nothing is left out, and outputs stay as they are."""
    generator = torch.Generator().manual_seed(3)
    built = build("resnet8", 4, (1, 8, 8), seed=1, norm=norm, channels=(4, 8, 8))
    model = model_of(built, example=torch.zeros(2, 1, 8, 8))
    params, before = model.initial_params(), [buffer.clone() for buffer in built.buffers()]
    who = client(torch.randn(12, 1, 8, 8, generator=generator), torch.arange(12) % 4)
    method = FedFIbOSChannels()
    found = diagnose_channels(method, model, method.init(params), params, [who], [0.5, 1.0], generator)
    own = found["1.0"]["selections"]["method"]
    assert (own["surrogate"]["mean"], own["error"]["mean"], own["divergence"]["mean"]) == (0.0, 0.0, 0.0)
    half = found["0.5"]["selections"]
    assert half["fisher"]["surrogate"]["mean"] < half["prefix"]["surrogate"]["mean"]
    assert all(numbers["divergence"]["mean"] > 0 for numbers in half.values())
    assert all(torch.equal(now, then) for now, then in zip(built.buffers(), before, strict=True))


def test_only_slices_of_whole_channels_are_looked_at():
    image = torch.zeros(2, 1, 8, 8)
    plain = model_of(build("lenet", 4, (1, 8, 8), seed=1, channels=(4, 8), hidden=12), example=image)
    normed = model_of(build("cnn", 4, (1, 8, 8), seed=1, norm="batch"), example=image)
    who = client(image, torch.tensor([0, 1]), 0.25)
    for model, method, wanted in (
        (plain, FedFIbOSChannels(), True),
        (plain, HeteroFL(), True),
        (plain, FIARSE(), False),
        (normed, HeteroFL(), True),
    ):
        params = model.initial_params()
        assert holds_channels(method, model, method.init(params), params, who) is wanted


def test_the_command_prints_and_keeps_them(experiment_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    toml = experiment_file('method.name = "fedfibos-channels"')
    assert main(["run", str(toml), "--out", str(tmp_path / "run"), "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["diagnose", str(tmp_path / "run"), "--clients", "2", "--capacity", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "Selections of channels" in shown
    assert max(map(len, map(str.rstrip, shown.partition("written: ")[0].splitlines()))) <= 80
    kept = json.loads((tmp_path / "run" / "diagnosis.json").read_text())
    assert list(kept["channels"]) == ["0.5"]
    assert kept["channels"]["0.5"]["selections"]["random"]["error"]["n"] == 12  # six for each of two clients
