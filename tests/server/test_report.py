"""What is known of a round's clients."""

from __future__ import annotations

import torch
from torch import nn

from fedfibos.model import model_of
from fedfibos.server.report import measured, part_of
from fedfibos.submodel import full
from fedfibos.types import Upload

LAYOUT = model_of(nn.Linear(4, 1, bias=False)).layout
UPLOAD = Upload(full(LAYOUT), torch.zeros(4), 2.5, 3)


def test_a_part_has_what_was_measured():
    assert part_of(UPLOAD, LAYOUT) == {"up": 16, "loss": 2.5}
    found = measured(lambda: UPLOAD)
    assert found.seconds >= 0
    assert found.memory > 10**6
    assert part_of(found, LAYOUT) == {"up": 16, "loss": 2.5, "seconds": found.seconds, "memory": found.memory}


def test_a_client_that_cannot_train_is_not_measured():
    assert measured(lambda: "it has no training example") == "it has no training example"
