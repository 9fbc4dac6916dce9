"""One round of FIARSE on six parameters by hand, and what its mask and gradient must satisfy.

The model is a linear layer without bias from three inputs to two classes, x̃₀ = (1/2, 1/4, 1/8) in both rows. Equal
rows give equal scores, so the gradient of the cross-entropy at an example (x, y) is −x/2 in row y and +x/2 in the
other. Every client makes one step on one example with learning rate 1/2.

Client 0, γ = 2/3, so k = 4: it holds coordinates 0, 1, 3, 4 and θ = 1/4. Example x = (2, 4, 8), y = 0. The factor of
the gradient is 1 + 2s(1 − s) with s = θ/(|x| + θ): 13/9 at |x| = 1/2 (s = 1/3), 3/2 at |x| = 1/4 (s = 1/2).

    g = (−1, −2, −4, 1, 2, 4)    Δ = (−13/18, −3/2, 0, 13/18, 3/2, 0)     without the factor (−1/2, −1, 0, 1/2, 1, 0)

Client 1, γ = 1/3, so k = 2: it holds coordinates 0 and 3 and θ = 1/2. Example x = (4, 2, 2), y = 1. Factor 3/2.

    g = (2, 1, 1, −2, −1, −1)    Δ = (3/2, 0, 0, −3/2, 0, 0)              without the factor (1, 0, 0, −1, 0, 0)

Holders' average of Δ: (7/18, −3/2, 0, −7/18, 3/2, 0)    so x̃₁ = (1/9, 7/4, 1/8, 8/9, −5/4, 1/8)
Without the factor:    (1/4, −1, 0, −1/4, 1, 0)          so x̃₁ = (1/4, 5/4, 1/8, 3/4, −3/4, 1/8)
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.methods.fedavg import FedAvg
from fedfibos.methods.fiarse import FIARSE, masked
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.params import Params
from fedfibos.round import federated_round
from fedfibos.submodel import Mask
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

ONE_STEP = LocalTraining(steps=1, batch_size=1, lr=0.5)


def linear() -> Model:
    module = nn.Linear(3, 2, bias=False)
    module.weight.data = torch.tensor([[1 / 2, 1 / 4, 1 / 8]] * 2)
    return model_of(module)


def participant(number: int, capacity: float, x: list[float], y: int) -> Client:
    return Client(number, capacity, 0, 0, ONE_STEP, TensorData(torch.tensor([x]), torch.tensor([y])))


def clients() -> list[Client]:
    return [participant(0, 2 / 3, [2.0, 4.0, 8.0], 0), participant(1, 1 / 3, [4.0, 2.0, 2.0], 1)]


@pytest.mark.parametrize(
    ("gradient", "after"),
    [("tcb", [1 / 9, 7 / 4, 1 / 8, 8 / 9, -5 / 4, 1 / 8]), ("masked", [1 / 4, 5 / 4, 1 / 8, 3 / 4, -3 / 4, 1 / 8])],
)
def test_one_round(gradient, after):
    model = linear()
    _, params, _ = federated_round(FIARSE(gradient=gradient), model, State(), model.initial_params(), clients())
    assert params.flat.tolist() == pytest.approx(after, abs=1e-6)


def test_moved_holders_are_those_whose_update_is_not_zero():
    """Client 1 sees no value in input 0, so its coordinates 0 and 3 do not move and client 0 alone divides."""
    still = participant(1, 1 / 3, [0.0, 2.0, 2.0], 1)
    model = linear()
    outcomes = {}
    for holders in ("mask", "moved"):
        method = FIARSE(gradient="masked", holders=holders)
        _, params, _ = federated_round(method, model, State(), model.initial_params(), [clients()[0], still])
        outcomes[holders] = params.flat.tolist()
    assert outcomes["mask"] == [1 / 2 + 1 / 4, 1 / 4 + 1, 1 / 8, 1 / 2 - 1 / 4, 1 / 4 - 1, 1 / 8]
    assert outcomes["moved"] == [1 / 2 + 1 / 2, 1 / 4 + 1, 1 / 8, 1 / 2 - 1 / 2, 1 / 4 - 1, 1 / 8]


@given(st.floats(0.015625, 4, width=32), st.floats(0, 8, width=32), st.booleans())
def test_slope_is_the_straight_through_derivative(threshold, above, negative):
    """d/dx of x·m with m = 1 on the mask and m' that of clip((|x| − θ)/(|x| + θ), 0, 1), by autograd."""
    x = torch.tensor((threshold + above) * (-1 if negative else 1), dtype=torch.float64, requires_grad=True)
    theta = torch.tensor(threshold, dtype=torch.float64)
    inside = (x.abs() - theta) / (x.abs() + theta)
    soft = inside.clamp(0, 1) if above > 0 else inside  # at the kink, the derivative from the right
    surrogate = torch.autograd.grad(soft, x)[0]
    effective, slope = masked(x.detach(), theta, "tcb")
    assert effective == x.detach()
    assert float(slope) == pytest.approx(float(1 + x.detach() * surrogate), rel=1e-9)
    assert 1 <= float(slope) <= 1.5


def test_below_the_threshold_nothing_passes():
    x, theta = torch.tensor([0.1, -0.1, 0.3, 0.0]), torch.tensor([0.2, 0.2, 0.2, 0.0])
    for gradient in ("tcb", "masked"):
        effective, slope = masked(x, theta, gradient)
        assert effective.tolist() == [0, 0, pytest.approx(0.3), 0]
        assert slope[:2].tolist() == [0, 0]
        assert slope[3] == 1  # θ = 0: nothing is ranked, plain training


def mlp() -> Model:
    return model_of(build("mlp", 4, (1, 8, 8), seed=1, hidden=(16,)))


def trainer(steps: int, capacity: float = 0.25) -> Client:
    generator = torch.Generator().manual_seed(3)
    data = TensorData(torch.randn(20, 1, 8, 8, generator=generator), torch.arange(20) % 4)
    return Client(0, capacity, 0, 0, LocalTraining(steps=steps, batch_size=10, lr=0.5), data)


@pytest.mark.parametrize("gradient", ["tcb", "masked"])
def test_the_mask_shrinks_within_a_round_and_dropped_values_freeze(gradient):
    """The first k steps are the same whatever comes after, so training longer shows the course of one training."""
    model, method = mlp(), FIARSE(gradient=gradient)
    params = model.initial_params()
    submodel = method.extract(model, State(), params, trainer(1))
    threshold = float(params.flat[submodel.held].abs().min())
    held, values, dropped = submodel.held, params.flat, 0
    for steps in range(1, 8):
        end = submodel.gather(params.flat) - method.train(model, params, submodel, trainer(steps)).delta
        out = submodel.held & ~held
        assert torch.equal(end[out], values[out])
        now = submodel.held & (end.abs() >= threshold)
        assert not bool((now & ~held).any())
        dropped += int(held.sum() - now.sum())
        held, values = now, end
    assert dropped > 10


def test_a_client_needs_only_what_it_holds():
    """θ is the smallest magnitude held: with everything else unknown the upload is the same."""
    for method in (FIARSE(), FIARSE(scope="layer"), FIARSE(groups=("classifier",))):
        model = mlp()
        params, client = model.initial_params(), trainer(3)
        submodel = method.extract(model, State(), params, client)
        received = Params(params.layout, submodel.gather(params.flat))
        uploads = [method.train(model, known, submodel, client).delta for known in (params, received)]
        assert torch.equal(*uploads)


def test_capacity_one_is_fedavg():
    model = mlp()
    cohort = [replace(trainer(3, 1.0), id=n) for n in range(3)]
    ends = [
        federated_round(method, model, State(), model.initial_params(), cohort)[1].flat
        for method in (FIARSE(), FedAvg())
    ]
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 1, 0, 0, 1, 0]),
        ({"scope": "layer"}, [1, 1, 0, 0, 1, 0]),
        ({"groups": ("0",)}, [1, 1, 0, 0, 1, 1]),
        ({"groups": ("0", "1")}, [1, 1, 0, 0, 1, 1]),
        ({"groups": ("0", "0.", "1")}, [1, 1, 0, 0, 1, 1]),  # a group of none, as longer ones have all of it
        ({"scope": "layer", "rounding": "floor"}, [1, 0, 0, 0, 1, 0]),
        ({"rounding": "floor"}, [1, 1, 0, 0, 0, 0]),
    ],
)
def test_scopes_and_rounding(settings, expected):
    """Six weights 7, 6, 1 (first layer) and 2, 5, 3 (second) at γ = .45: k = ⌈2.7⌉ = 3 or ⌊2.7⌋ = 2.

    Two groups of three have k = ⌈1.35⌉ = 2 or ⌊1.35⌋ = 1 each; per tensor with the total of 3 the first gets two.
    """
    module = nn.Sequential(nn.Linear(1, 3, bias=False), nn.Linear(3, 1, bias=False))
    module[0].weight.data, module[1].weight.data = torch.tensor([[7.0], [6], [1]]), torch.tensor([[2.0, 5, 3]])
    model = model_of(module)
    submodel = FIARSE(**settings).extract(model, State(), model.initial_params(), Client(0, 0.45, 0, 0, ONE_STEP))
    assert isinstance(submodel, Mask)
    assert submodel.held.int().tolist() == expected


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"groups must be prefixes, \('a',\) for one, got 'a'"):
        FIARSE(groups="a")
    with pytest.raises(ValueError, match="groups need scope = 'global', got scope = 'layer'"):
        FIARSE(scope="layer", groups=("a",))
    with pytest.raises(ValueError, match="group 'nowhere' begins no maskable tensor"):
        FIARSE(groups=("nowhere",)).extract(linear(), State(), linear().initial_params(), clients()[0])
