"""A criterion of the user's own: what is wrong with it is one line."""

from __future__ import annotations

import re

import pytest
import torch

from fedfibos.methods._criterion import ranked_by

SCORE, MAGNITUDE = torch.tensor([0.5, 0.0, 2.0]), torch.tensor([1.0, 3.0, 1.0])


@pytest.mark.parametrize(
    ("criterion", "wanted"),
    [
        (lambda score, magnitude, evidence: score * magnitude, [0.5, 0.0, 2.0]),
        (lambda score, magnitude, evidence: score.log(), [-0.6931472, -torch.inf, 0.6931472]),
        (lambda score, magnitude, evidence: score > 1, [0.0, 0.0, 1.0]),
        (lambda score, magnitude, evidence: (magnitude * 2).long(), [2.0, 6.0, 2.0]),
        (lambda score, magnitude, evidence: magnitude.requires_grad_(), [1.0, 3.0, 1.0]),
    ],
)
def test_one_real_number_a_coordinate_is_ranked(criterion, wanted):
    made = ranked_by(criterion, SCORE.clone(), MAGNITUDE.clone(), None)
    torch.testing.assert_close(made, torch.tensor(wanted))


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (
            lambda score, magnitude, evidence: None,
            "it must return real numbers of shape (3,), one a coordinate, got NoneType",
        ),
        (lambda score, magnitude, evidence: score[:2], "got torch.float32 of shape (2,)"),
        (lambda score, magnitude, evidence: score.mean(), "got torch.float32 of shape ()"),
        (lambda score, magnitude, evidence: score.mul_(magnitude), "it must change none of its arguments"),
        (lambda score, magnitude, evidence: (score - score) / (score - score), "it must not return NaN, got 3 of 3"),
        (lambda score: score, "takes 1 positional argument but 3 were given (in criterion)"),
        (lambda score, magnitude, evidence: score * evidence, "unsupported operand type(s) for *"),
    ],
)
def test_what_is_wrong_is_one_line(criterion, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        ranked_by(criterion, SCORE.clone(), MAGNITUDE.clone(), None)
    assert "criterion" in str(caught.value)
    assert "\n" not in str(caught.value)
