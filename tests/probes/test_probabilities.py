"""Models that give probabilities are warned of, and models of scores never."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedfibos.models import build
from fedfibos.probes.probabilities import probability_cautions


class Ending(nn.Module):
    def __init__(self, end) -> None:
        super().__init__()
        self.first, self.last, self.end = nn.Linear(6, 8), nn.Linear(8, 4), end

    def forward(self, x: Tensor) -> Tensor:
        logits = self.last(self.first(x).relu())
        return self.end(logits, self.training)


ENDS = {
    "softmax": (lambda y, training: y.softmax(1), "the model's outputs are probabilities (it ends in softmax)"),
    "sharp": (lambda y, training: (10 * y).softmax(1), "the model's outputs are probabilities (it ends in softmax)"),
    "log-softmax": (lambda y, training: y.log_softmax(1), "the model's outputs are logarithms of probabilities"),
    "sigmoid": (
        lambda y, training: y.sigmoid(),
        "the model's outputs lie between 0 and 1 whatever its inputs (as after sigmoid)",
    ),
    "relu": (lambda y, training: y.relu(), "the model's outputs lie on one side of 0 and some are 0"),
    "below 0": (lambda y, training: -y.relu(), "the model's outputs lie on one side of 0 and some are 0"),
    "no input": (lambda y, training: y[:1].expand(len(y), -1), "the model's outputs are the same for all examples"),
    "in evaluation": (
        lambda y, training: y if training else y.softmax(1),
        "in evaluation the model's outputs are probabilities",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_probabilities_are_said(end):
    make, start = ENDS[end]
    (line,) = probability_cautions(Ending(make), torch.rand(2, 6))
    assert line.startswith(start)


class Wide(Ending):
    """Scores of every position, as of texts (the last dimension) or of maps (the second one)."""

    def __init__(self, end, dim: int) -> None:
        super().__init__(end)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        logits = self.last(self.first(x).relu())
        return self.end(
            logits[:, None, :].expand(-1, 5, -1) if self.dim == 2 else logits[:, :, None, None].expand(-1, -1, 3, 3)
        )


@pytest.mark.parametrize("dim", [1, 2])
def test_probabilities_of_tokens_and_of_pixels_are_said(dim):
    (line,) = probability_cautions(Wide(lambda y: y.softmax(dim), dim), torch.rand(2, 6))
    assert line.startswith("the model's outputs are probabilities (it ends in softmax)")
    assert probability_cautions(Wide(lambda y: y, dim), torch.rand(2, 6)) == []


@pytest.mark.parametrize("classes", [1, 4])
def test_sigmoid_before_a_loss_that_applies_it_is_said(classes):
    def of_all(y, training):
        return y[:, :classes].sigmoid()

    def of_evaluation(y, training):
        return y[:, :classes] if training else y[:, :classes].sigmoid()

    (line,) = probability_cautions(Ending(of_all), torch.rand(2, 6), "sigmoid")
    assert "as after sigmoid), but the loss takes scores and applies sigmoid itself" in line
    (line,) = probability_cautions(Ending(of_evaluation), torch.rand(2, 6), "sigmoid")
    assert line.startswith("in evaluation the model's outputs lie between 0 and 1")


def test_outputs_that_nothing_changes_are_no_probabilities():
    (line,) = probability_cautions(Ending(lambda y, training: 0 * y), torch.rand(2, 6))
    assert line == "the model's outputs are the same whatever its inputs and its parameters are: nothing can be learnt"


SCORES = {
    "scores": lambda y, training: y,
    "positive": lambda y, training: y.abs(),
    "distances": lambda y, training: -y.square(),
    "tanh": lambda y, training: y.tanh(),
    "centred": lambda y, training: y - y.mean(1, keepdim=True) + 0.25,
    "unit length": lambda y, training: y / y.norm(dim=1, keepdim=True),
    "ruled out": lambda y, training: torch.cat([y[:, :-1], torch.full_like(y[:, :1], -torch.inf)], 1),
}


@pytest.mark.parametrize("end", SCORES)
def test_scores_are_not(end):
    assert probability_cautions(Ending(SCORES[end]), torch.rand(2, 6)) == []


def test_the_same_example_twice_has_the_same_scores():
    assert probability_cautions(Ending(SCORES["scores"]), torch.ones(2, 6, dtype=torch.float32)) == []
    counted = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 4))
    assert probability_cautions(counted, torch.full((2, 3), 5)) == []


def test_scores_that_sum_to_one_at_first_are_not():
    net = Ending(lambda y, training: y)
    nn.init.zeros_(net.last.weight)
    nn.init.constant_(net.last.bias, 0.25)
    assert torch.equal(net(torch.rand(2, 6)).sum(1), torch.ones(2))
    assert probability_cautions(net, torch.rand(2, 6)) == []
    assert probability_cautions(build("cnn", 4, (1, 8, 8)), torch.rand(2, 1, 8, 8)) == []
    assert probability_cautions(nn.Linear(6, 1), torch.rand(2, 6)) == []
