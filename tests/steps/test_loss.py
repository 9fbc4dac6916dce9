"""The losses of local steps, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from fedfibos import LocalTraining
from fedfibos.steps.loss import adjusted_loss, loss_of
from fedfibos.tasks.classification import CLASSIFICATION, softened

EQUAL = torch.zeros(1, 3)


def test_adjusted_loss_by_hand():
    """Counts 3, 1, 0: π = 4/7, 2/7, 1/7. Equal scores then give class 1 the probability 2/7, not 1/3."""
    loss = adjusted_loss(EQUAL, torch.tensor([1]), loss=CLASSIFICATION.loss, counts=torch.tensor([3, 1]), tau=1.0)
    assert float(loss) == pytest.approx(-math.log(2 / 7))


def test_tau_scales_the_logarithm_and_zero_is_plain_cross_entropy():
    """τ = 2: weights 16, 4, 1 of 21."""
    counts = torch.tensor([3, 1])
    assert float(
        adjusted_loss(EQUAL, torch.tensor([1]), loss=CLASSIFICATION.loss, counts=counts, tau=2.0)
    ) == pytest.approx(-math.log(4 / 21))
    assert float(
        adjusted_loss(EQUAL, torch.tensor([1]), loss=CLASSIFICATION.loss, counts=counts, tau=0.0)
    ) == pytest.approx(math.log(3))


def test_what_becomes_of_absent_classes_is_the_settings():
    labels, device = torch.tensor([0, 0, 0, 1]), torch.device("cpu")
    logits = torch.tensor([[1.0, 0.0, 5.0]])
    kinds = ("keep", "mask", "adjust")
    of = {k: loss_of(CLASSIFICATION, LocalTraining(absent_labels=k), labels, device) for k in kinds}
    e = math.e
    assert float(of["keep"](logits, torch.tensor([0]))) == pytest.approx(-math.log(e / (e + 1 + e**5)))
    assert float(of["mask"](logits, torch.tensor([0]))) == pytest.approx(-math.log(e / (e + 1 + 1)))
    assert float(of["adjust"](logits, torch.tensor([0]))) == pytest.approx(-math.log(4 * e / (4 * e + 2 + e**5)))


def test_distillation_by_hand():
    """Teacher (ln 3, 0): probabilities 3/4 and 1/4, student 1/2 each. At T = 2: √3 to 1, and times 4."""
    teacher, student = torch.tensor([[math.log(3.0), 0.0]]), torch.zeros(1, 2)
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert float(softened(student, teacher, 1.0)) == pytest.approx(expected)
    p = math.sqrt(3) / (math.sqrt(3) + 1)
    expected = 4 * (p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)))
    assert float(softened(student, teacher, 2.0)) == pytest.approx(expected)
    assert float(softened(teacher, teacher, 2.0)) == pytest.approx(0.0, abs=1e-7)
