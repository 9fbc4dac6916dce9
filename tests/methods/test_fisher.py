"""The diagonal Fisher of one round, and its moving average, by hand."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedfibos.local import LocalTrainingError, Step
from fedfibos.methods._fisher import Ema, FisherObserver, check_average
from fedfibos.model import model_of
from fedfibos.submodel import Mask


def observed(source, steps=1):
    """Weights 0, inputs 1 and 3, labels 1 and 0: gradients of single examples are (½, −½) and (−3/2, 3/2)."""
    module = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(module.weight)
    model = model_of(module)
    inputs, labels = torch.tensor([[1.0], [3.0]]), torch.tensor([1, 0])
    loss = cross_entropy(module(inputs), labels)
    (gradient,) = torch.autograd.grad(loss, [module.weight])
    observer = FisherObserver(model, source)
    for _ in range(steps):
        observer(Step(module, inputs, labels, [gradient], cross_entropy))
    return observer


def test_minibatch_squares_are_of_the_mean_gradient():
    """(½ − 3/2) / 2 = −½: squared and divided by the two examples."""
    assert observed("minibatch").estimate().tolist() == [0.125, 0.125]


@pytest.mark.parametrize("source", ["minibatch", "per_example"])
def test_squares_of_several_steps_are_added_up(source):
    """The same step twice: twice the squares, of twice the examples. Without a step there is no estimate."""
    assert observed(source, steps=2).estimate().tolist() == pytest.approx(observed(source).estimate().tolist())
    assert observed(source, steps=0).estimate().tolist() == [0.0, 0.0]


def test_per_example_squares_are_of_each_example():
    """(¼ + 9/4) / 2."""
    assert observed("per_example").estimate().tolist() == pytest.approx([1.25, 1.25])


def test_a_mask_estimates_nothing_off_it():
    assert observed("minibatch").estimate(Mask(torch.tensor([True, False]), 1)).tolist() == [0.125, 0.0]


def test_batch_normalisation_has_no_gradients_of_single_examples():
    with pytest.raises(LocalTrainingError, match="needs a model without batch normalisation"):
        FisherObserver(model_of(nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2))), "per_example")


def test_a_warm_average_starts_from_the_magnitude():
    ema = Ema(0.75, warm=True, per_coordinate=False)
    start = ema.start(torch.tensor([4.0, 8.0]))
    moved = ema.step(start, torch.tensor([0.0, 4.0]), None)
    assert moved.tolist() == [3.0, 7.0]
    assert ema.step(start, torch.tensor([0.0, 4.0]), torch.tensor([True, False])).tolist() == [3.0, 8.0]


def test_without_a_warm_start_the_first_estimate_is_taken_whole():
    """Then 0.75 · 8 + 0.25 · 0 over the evidence 1 − 0.75², by coordinate."""
    ema = Ema(0.75, warm=False, per_coordinate=True)
    first = ema.step(ema.start(torch.zeros(2)), torch.tensor([8.0, 4.0]), torch.tensor([True, False]))
    score, observed = ema.importance(first, 2)
    assert (score.tolist(), observed.tolist()) == ([8.0, 0.0], [True, False])
    second = ema.step(first, torch.tensor([0.0, 4.0]), torch.tensor([True, False]))
    assert ema.importance(second, 2)[0].tolist() == pytest.approx([0.75 * 0.25 * 8 / (1 - 0.75**2), 0.0])


def test_ranges_of_the_rates():
    check_average(0.0, 1.0)
    for rates, message in (((1.0, 0.5), "ema_rate must be in"), ((0.5, 1.5), "blend must be in")):
        with pytest.raises(ValueError, match=message):
            check_average(*rates)
