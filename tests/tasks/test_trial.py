"""A task of the user's own is tried before any training: what cannot be is refused, what cannot be meant is said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from fedfibos.tasks import TASKS, Metric, Task
from fedfibos.tasks.trial import pairing_cautions, try_task

DRAW = torch.Generator().manual_seed(0)
OUTPUTS, TARGETS = torch.randn(8, 1, generator=DRAW), torch.randn(8, generator=DRAW)
METRICS = (Metric("mse", "lower", lambda seen: seen[:, 0].square().mean()),)
SOUND = Task(lambda o, t: (o[:, 0] - t).square().mean(), lambda o, t: o[:, 0] - t, METRICS, outputs=1)


def test_a_sound_task_is_let_be():
    try_task(SOUND, OUTPUTS[:2], TARGETS[:2])
    assert pairing_cautions(SOUND, OUTPUTS, TARGETS) == []
    classes = TASKS["classification"]().task(torch.arange(3), ("a", "b", "c"))
    assert pairing_cautions(classes, torch.randn(8, 3, generator=DRAW), torch.arange(8) % 3) == []
    tokens = TASKS["language-modelling"]().task(torch.arange(12).view(4, 3), ())
    assert pairing_cautions(tokens, torch.randn(4, 3, 12, generator=DRAW), torch.arange(12).view(4, 3)) == []


@pytest.mark.parametrize(
    ("loss", "got"),
    [(lambda o, t: (o[:, 0] - t).log().mean(), "nan"), (lambda o, t: (o[:, 0] - t).square().mean() / 0, "inf")],
)
def test_a_loss_that_is_no_number_is_refused(loss, got):
    message = f"loss must be a finite number, got {got} of two examples whose outputs are finite"
    with pytest.raises(ValueError, match=f"^{message}$"):
        try_task(replace(SOUND, loss=loss, signed=True), OUTPUTS[:2], TARGETS[:2] + 9)


def test_rows_of_all_with_all_are_refused():
    message = re.escape(
        "observe must give as many numbers an example in every batch, got 2 of each of 2 and 1 of one alone: outputs "
        "of shape (2, 1) and targets of shape (2,) are paired all with all (a broadcast)"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        try_task(replace(SOUND, observe=lambda o, t: (o - t).square()), OUTPUTS[:2], TARGETS[:2])


@pytest.mark.parametrize(
    ("loss", "start"),
    [
        (lambda o, t: (o - t).square().mean(), "the loss stays the same when the targets of 8 examples change places"),
        (lambda o, t: o.square().mean(), "the loss stays the same when the targets of 8 examples change places"),
        (lambda o, t: (o[:, 0] - t).square().sum(), "the loss of a batch twice over is twice that of the batch"),
    ],
)
def test_a_loss_that_cannot_be_meant_is_said(loss, start):
    (line,) = pairing_cautions(replace(SOUND, loss=loss), OUTPUTS, TARGETS)
    assert line.startswith(start)


def test_examples_that_tell_nothing_are_not_said_to():
    assert pairing_cautions(SOUND, torch.ones(8, 1), TARGETS) == []
    assert pairing_cautions(SOUND, OUTPUTS, torch.ones(8)) == []
