"""The Fisher information of channel gates, by hand."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedfibos.local import Step
from fedfibos.methods._gates import GateObserver
from fedfibos.model import model_of
from fedfibos.submodel import full
from fedfibos.types import NO_ESTIMATE


def observed(num_steps):
    """Hidden values 2 and 1; second layer ((1, 0), (0, 0)): logits 2 and 0, label 0."""
    module = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[2.0], [1.0]]))
        module[1].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    model = model_of(module, example=torch.ones(1, 1))
    observer = GateObserver(model, full(model.layout))
    inputs, labels = torch.ones(1, 1), torch.tensor([0])
    named = dict(module.named_parameters())
    for _ in range(num_steps):
        loss = cross_entropy(module(inputs), labels)
        gradients = torch.autograd.grad(loss, [named[name] for name in model.layout.names])
        observer(Step(module, inputs, labels, gradients, cross_entropy))
    return observer.estimate()


def test_the_square_of_a_gates_derivative():
    """∂L/∂m = Σ over outputs of (p − label) · weight · hidden: −(1 − p₀) · 2 for the first gate, 0 for the second."""
    first = float(torch.softmax(torch.tensor([2.0, 0.0]), 0)[0])
    torch.testing.assert_close(observed(1), torch.tensor([(2 * (1 - first)) ** 2, 0.0]))
    torch.testing.assert_close(observed(3), observed(1))


def test_without_a_step_there_is_no_estimate():
    assert observed(0).tolist() == [NO_ESTIMATE] * 2
