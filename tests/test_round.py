"""A round: its cohort, and outcomes in their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedfibos.methods import METHODS
from fedfibos.round import federated_round, run_in_turn
from fedfibos.soundness import NoUploadError
from small_models import cohort, small_model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda outcomes: outcomes[:-1], r"outcomes must be of clients \[0, 1, 2\], got 2 of 3"),
        (lambda outcomes: outcomes[::-1], r"in this order, got client 2 as number 1"),
        (lambda outcomes: [*outcomes, outcomes[-1]], "got client 2 as number 4"),
    ],
)
def test_outcomes_are_of_all_in_order(change, said):
    """Another order of summation is other bytes, and one that is missing would count as having taken part."""
    model = small_model()
    method, params, clients = METHODS["fedfibos"](), model.initial_params(), cohort()
    clients = [client for client in clients if client.id < 3]
    state = method.init(params)

    def run(params, jobs):
        return iter(change(list(run_in_turn(method, model, params, jobs))))

    with pytest.raises(ValueError, match=said):
        federated_round(method, model, state, params, clients, run)


@pytest.mark.parametrize("ids", [[], [1, 1]])
def test_a_cohort_is_different_clients(ids):
    method, model = METHODS["fedfibos"](), small_model()
    params = model.initial_params()
    clients = [replace(cohort()[0], id=n) for n in ids]
    with pytest.raises(ValueError, match="a cohort must be different clients"):
        federated_round(method, model, method.init(params), params, clients)


def test_a_round_in_which_all_diverge_says_so_and_names_some():
    """A reason for each of many clients is a page; five are a line."""
    model = small_model()
    method, params = METHODS["fedfibos"](), model.initial_params()
    clients = [replace(cohort()[0], id=n) for n in range(8)]

    def run(params, jobs):
        return ((client, f"its update has {client.id} bad values (training loss nan)") for client, _ in jobs)

    with pytest.raises(NoUploadError) as error:
        federated_round(method, model, method.init(params), params, clients, run)
    said = str(error.value)
    assert said.startswith("no usable upload in the round: client 0: its update has 0 bad values (training loss nan); ")
    assert said.endswith(
        "; 3 more for other reasons; training diverges: lower local.lr, or scale the inputs and targets"
    )
    assert said.count("bad values") == 5
    assert len(error.value.rejected) == 8
