"""Weights written as length times direction, or divided by a norm, train under any mask."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.probes.zeros import intolerant_of_zeros
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client

parametrised = nn.utils.parametrizations


class Net(nn.Module):
    def __init__(self, norm) -> None:
        super().__init__()
        self.first, self.last = norm(nn.Linear(6, 12)), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


class ByHand(nn.Module):
    """A linear layer whose direction is normalised in its forward."""

    def __init__(self, layer: nn.Linear, divisor) -> None:
        super().__init__()
        self.direction, self.length = nn.Parameter(layer.weight.detach().clone()), nn.Parameter(torch.ones(12, 1))
        self.divisor = divisor

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.length * self.direction / self.divisor(self.direction)).T


class Temperature(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer, self.temperature = layer, nn.Parameter(torch.full((1,), 1e-3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) / self.temperature


def old(norm):
    def made(layer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return norm(layer)

    return made


def hand(divisor):
    return lambda layer: ByHand(layer, divisor)


NORMS = {
    "weight_norm": (parametrised.weight_norm, "first.parametrizations.weight.original1"),
    "columns": (lambda layer: parametrised.weight_norm(layer, dim=1), "first.parametrizations.weight.original1"),
    "old weight_norm": (old(nn.utils.weight_norm), "first.weight_v"),
    "spectral_norm": (parametrised.spectral_norm, "first.parametrizations.weight.original"),
    "old spectral_norm": (old(nn.utils.spectral_norm), "first.weight_orig"),
    "rows by hand": (hand(lambda w: w.norm(dim=1, keepdim=True)), "first.direction"),
    "root mean square": (hand(lambda w: w.square().mean().sqrt()), "first.direction"),
    "zero gradient": (hand(lambda w: w.square().sum(1, keepdim=True).sqrt() + 1e-8), "first.direction"),
    "temperature": (Temperature, "first.temperature"),
}


def made(norm) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net(norm)


def data() -> TensorData:
    generator = torch.Generator().manual_seed(0)
    return TensorData(torch.randn(40, 6, generator=generator), torch.arange(40) % 3)


@pytest.mark.parametrize("method", ["fedfibos", "fiarse"])
@pytest.mark.parametrize("norm", NORMS)
def test_every_capacity_trains_and_the_direction_is_held_whole(norm, method):
    make, direction = NORMS[norm]
    model, chosen = model_of(made(make), example=data().inputs[:2]), METHODS[method]()
    assert model.whole == (direction,)
    assert direction in model.layout.names[model.layout.num_maskable_tensors :]
    params = model.initial_params()
    state, local = chosen.init(params), LocalTraining(steps=2, batch_size=8, lr=0.05)
    fleet = [Client(n, c, 0, 0, local, data()) for n, c in enumerate((1.0, 0.5, 0.25, 0.05))]
    for t in range(3):
        state, params, report = federated_round(chosen, model, state, params, [c.in_round(t, 3) for c in fleet])
        assert report.rejected == {}
    assert bool(params.flat.isfinite().all())


class Normalising(nn.Module):
    """Divides activations by their norm: a layer of zeros still has its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        return self.last(y / y.norm(dim=1, keepdim=True))


def test_a_norm_of_activations_and_one_that_is_kept_above_zero_hold_nothing():
    guarded = hand(lambda w: w.norm(dim=1, keepdim=True).clamp_min(1e-3))
    ruling = nn.Sequential(nn.Linear(6, 3), nn.Threshold(0.0, -torch.inf))
    for module in (Normalising(), made(guarded), nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12)), ruling):
        names = [name for name, _ in module.named_parameters()]
        assert intolerant_of_zeros(module, names, data().inputs[:2]) == ()


def test_a_direction_among_what_is_to_be_ranked_is_refused_by_name_and_so_is_a_model_of_nothing_else():
    module, example = made(parametrised.weight_norm), data().inputs[:2]
    name = "first.parametrizations.weight.original1"
    with pytest.raises(ValueError, match=rf"divides by parameter '{name}' or its norm.*leave it out of maskable"):
        model_of(module, maskable=[name, "last.weight"], example=example)

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x @ (self.weight / self.weight.norm())

    with pytest.raises(ValueError, match=r"divides by parameter 'weight'.*no parameters are left for capacities"):
        model_of(Alone(), example=example)
