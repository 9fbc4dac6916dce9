"""A client in a round."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fedfibos.methods import METHODS
from fedfibos.round import federated_round, sample
from fedfibos.training import LocalTraining
from small_models import cohort, small_model


def test_a_learning_rate_is_scheduled_once():
    made = replace(cohort()[0], local=LocalTraining(steps=1, lr=0.1, schedule="cosine"))
    assert made.in_round(15, 30).local.lr == pytest.approx(0.05)
    with pytest.raises(ValueError, match="as it was made, in round 0, got client 0 in round 15"):
        made.in_round(15, 30).in_round(16, 30)


def test_clients_are_checked_where_they_are_made():
    model = small_model()
    client = cohort()[0]
    for capacity in (0.0, 1.5, -1.0, math.nan):
        with pytest.raises(ValueError, match="capacity must be in"):
            replace(client, capacity=capacity)
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"the weight of client {client.id} must be 0 or a positive number"):
            replace(client, weight=weight)
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"a cohort needs at least one client, got {size} of 5"):
            sample(5, size, 0, 0)
    assert sample(5, 10, 0, 0) == [0, 1, 2, 3, 4]
    method, params = METHODS["fedavg"](), model.initial_params()
    clients = [replace(client, round=0), replace(client, id=9, round=3)]
    with pytest.raises(ValueError, match=r"must be in one round, got them in rounds \[0, 3\]"):
        federated_round(method, model, method.init(params), params, clients)
