"""Channel gates: one order for three criteria, and ½F as the second-order cost of a channel."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from fedfibos.analysis.gates import gate_fisher, removal_costs
from fedfibos.analysis.theory import order_agreement, surrogate
from fedfibos.data.images import TensorData
from fedfibos.model import Model, model_of

INPUTS = torch.randn(40, 6, generator=torch.Generator().manual_seed(3))
LABELS = (INPUTS[:, 0] > 0).long() + (INPUTS[:, 1] > 0).long()
DATA = TensorData(INPUTS, LABELS)


def network(steps: int = 0) -> Model:
    """Two hidden layers, trained for so many steps on all examples."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        cross_entropy(module(INPUTS), LABELS).backward()
        optimiser.step()
    return model_of(module, example=INPUTS[:2])


def outputs(model: Model, gates: Tensor) -> Tensor:
    """Log-probabilities with gates of the two hidden layers, in double precision."""
    first, second = gates.double().split([8, 5])
    weights = [p.detach().double() for p in model.module.parameters()]
    h = torch.tanh(linear(INPUTS.double(), *weights[:2])) * first
    return linear(torch.tanh(linear(h, *weights[2:4])) * second, *weights[4:]).log_softmax(1)


def test_the_three_criteria_of_the_paper_give_gates_one_order():
    """F, the surrogate F²x² of leaving the gate out, and F x²: x is 1."""
    model = network()
    fisher = gate_fisher(model, model.initial_params(), DATA)
    ones, everything = torch.ones(13), torch.ones(13, dtype=torch.bool)
    left_out = [surrogate(fisher, ones, everything & (torch.arange(13) != c)) for c in range(13)]
    assert left_out == pytest.approx(fisher.square().tolist())
    by_fisher = fisher.argsort().tolist()
    assert torch.tensor(left_out).argsort().tolist() == by_fisher
    assert (fisher * ones.square()).argsort().tolist() == by_fisher
    assert len(set(fisher.tolist())) == 13


def test_the_fisher_of_gates_is_the_mean_of_squares_over_examples():
    """Two examples by hand: logits (m, 0) of a hidden value 1 that only the first logit reads."""
    module = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.fill_(1.0)
        module[1].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    model = model_of(module, example=torch.ones(2, 1))
    data = TensorData(torch.ones(2, 1), torch.tensor([0, 1]))
    p = 1 / (1 + math.exp(-1.0))
    fisher = gate_fisher(model, model.initial_params(), data)
    assert fisher.tolist() == pytest.approx([((1 - p) ** 2 + p**2) / 2, 0.0])
    # of one batch: the mean derivative is ((p - 1) + p)/2, squared and times 2 examples
    together = gate_fisher(model, model.initial_params(), data, batch_size=2)
    assert together.tolist() == pytest.approx([2 * ((2 * p - 1) / 2) ** 2, 0.0])


def test_half_the_fisher_is_the_second_order_cost_of_a_channel():
    """Under the labels that the model expects: KL(m = 1 ‖ m = 1 − δ) = ½ δ² F + O(δ³), so the ratio nears 1 with δ."""
    model = network()
    params = model.initial_params()
    ones = torch.ones(13)
    expected = outputs(model, ones).exp()
    fisher = torch.zeros(13, dtype=torch.float64)
    for label in range(3):  # E over the model's own labels, example by example
        for n in range(len(INPUTS)):
            one = TensorData(INPUTS[n : n + 1], torch.tensor([label]))
            fisher += expected[n, label] * gate_fisher(model, params, one) / len(INPUTS)
    worst = []
    for delta in (0.1, 0.01):
        gaps = []
        for channel in range(13):
            gates = ones.double()
            gates[channel] -= delta
            base, moved = outputs(model, ones), outputs(model, gates)
            divergence = (base.exp() * (base - moved)).sum(1).mean()
            gaps.append(abs(float(divergence / (0.5 * delta**2 * fisher[channel])) - 1.0))
        worst.append(max(gaps))
    assert worst[0] < 0.3
    assert worst[1] < 0.03
    assert worst[1] < 0.2 * worst[0]


def test_what_leaving_a_channel_out_costs_is_what_a_gate_of_zero_costs():
    model = network(steps=60)
    costs = removal_costs(model, model.initial_params(), DATA)
    whole = float(cross_entropy(outputs(model, torch.ones(13)), LABELS))
    for channel in range(13):
        gates = torch.ones(13)
        gates[channel] = 0.0
        assert float(costs[channel]) == pytest.approx(
            float(cross_entropy(outputs(model, gates), LABELS)) - whole, abs=1e-6
        )


def test_the_fisher_orders_what_channels_cost():
    """After training; by chance half of the pairs would agree."""
    model = network(steps=60)
    params = model.initial_params()
    fisher, costs = gate_fisher(model, params, DATA), removal_costs(model, params, DATA)
    assert order_agreement(fisher.tolist(), costs.tolist()) > 0.7
