"""The diagnosis of a checkpoint: what must hold of its numbers whatever the run, and what a bad call gets."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from rich.console import Console
from tiny_federation import fleet, random_params, tiny_model
from torch import nn
from torch.nn.functional import cross_entropy

from fedfibos.analysis.diagnose import diagnose
from fedfibos.analysis.theory import boundary_violations, dataset_fisher, jaccard, masking_error, surrogate
from fedfibos.backend.topk import top_k
from fedfibos.cli.diagnose import diagnosis_table
from fedfibos.common.streams import stream
from fedfibos.method import Method
from fedfibos.methods.fedavg import FedAvg
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.model import Model, model_of
from fedfibos.params import Params
from fedfibos.round import federated_round
from fedfibos.submodel import mask_from_scores
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

CAPACITIES = [0.5, 0.2]


def checkpoint(method: Method, model: Model, rounds: int = 5) -> tuple[Params, State, list[Client]]:
    at_round, params = fleet(7, [1.0, 0.6, 0.3]), random_params(model, 7)
    state = method.init(params)
    for t in range(rounds):
        state, params, _ = federated_round(method, model, state, params, at_round(t))
    return params, state, at_round(rounds)


def diagnosed(method: Method, **changes: Any) -> dict[str, Any]:
    model = tiny_model()
    params, state, clients = checkpoint(method, model)
    arguments = {"clients": clients, "capacities": CAPACITIES, "generator": stream(7, "diagnosis"), **changes}
    return diagnose(method, model, state, params, **arguments)


def test_numbers_of_one_client_are_those_of_theory() -> None:
    method, model = FedFIbOS(sharing="client"), tiny_model()
    params, state, clients = checkpoint(method, model)
    client, k = clients[2], 20
    found = diagnose(method, model, state, params, [client], [k / model.layout.num_maskable], stream(0, "x"))
    here = next(iter(found["capacities"].values()))
    values = params.flat[: model.layout.num_maskable]
    assert client.data is not None
    fisher = dataset_fisher(model, params, client.data)
    submodel = method.extract(model, state, params, replace(client, capacity=k / model.layout.num_maskable))
    error = masking_error(model, params, submodel, client.data)  # type: ignore[arg-type]
    by_fisher, by_magnitude = top_k(fisher, k), top_k(values.abs(), k)
    assert here["k"] == k
    assert here["selections"]["method"]["error"]["held"]["mean"] == pytest.approx(error.held)
    assert here["selections"]["method"]["error"]["dense"]["mean"] == pytest.approx(error.dense)
    assert here["selections"]["fisher"]["surrogate"]["mean"] == pytest.approx(surrogate(fisher, values, by_fisher))
    assert here["selections"]["fisher"]["jaccard"]["mean"] == jaccard(by_fisher, by_magnitude)
    assert here["violations"]["fisher"]["mean"] == boundary_violations(fisher, values, k)
    maintained = method.importance(state, params, client)
    assert maintained is not None
    assert here["violations"]["maintained"]["mean"] == boundary_violations(maintained, values, k)
    squared_norm = float(params.flat.double().square().sum())
    ratio = here["selections"]["method"]["coefficient"]["held"]["mean"] / error.held
    assert ratio == pytest.approx(1 / squared_norm)
    assert here["selections"]["method"]["surrogate"]["sd"] is None


@pytest.mark.parametrize("method", [FedFIbOS(), FedFIbOS(sharing="client", prior="none"), FedFIbOS(criterion="random")])
def test_what_holds_of_every_diagnosis(method: FedFIbOS) -> None:
    found = diagnosed(method)
    assert json.loads(json.dumps(found)) == found
    assert found["round"] == 5
    assert found["clients"] == [0, 1, 2]
    assert found["fisher_from"] == "per_example"
    for capacity, here in found["capacities"].items():
        selections = here["selections"]
        assert list(selections) == ["method", "fisher", "ssp", "magnitude", "random"]
        best = selections["ssp"]["surrogate"]["mean"]
        for numbers in selections.values():
            assert numbers["surrogate"]["mean"] >= best * (1 - 1e-9)  # Theorem 1, on a real checkpoint
            assert numbers["error"]["dense"]["mean"] >= numbers["error"]["held"]["mean"] >= 0
            assert numbers["num_held"]["mean"] == here["k"] == math.ceil(float(capacity) * found["num_maskable"])
            assert numbers["surrogate"]["n"] == 3
        assert selections["magnitude"]["jaccard"]["mean"] == 1.0
        assert all(0 <= x["mean"] <= 1 for x in [*here["violations"].values(), *here["order_agreement"].values()])


def test_a_method_without_scores_or_masks_is_measured_beside_the_selections() -> None:
    """FedAvg holds everything: no error at all, and no f̄ to report; it takes no part in the order of k-selections."""
    found = diagnosed(FedAvg())
    assert "maintained" not in found["cv"]
    for here in found["capacities"].values():
        assert here["selections"]["method"]["error"]["held"]["mean"] == 0.0
        assert here["selections"]["method"]["num_held"]["mean"] == found["num_maskable"]
        assert list(here["violations"]) == ["fisher"]


def test_only_selections_of_k_coordinates_are_put_in_order() -> None:
    """The whole model (ε = 0, e = 0) would agree with everything; so would one selection under two names.

    FedAvg's submodel is the first, the magnitude criterion's the second: both leave the four plain selections.
    """
    model = tiny_model()
    params, _, clients = checkpoint(FedFIbOS(), model)
    found = [
        diagnose(method, model, method.init(params), params, clients, CAPACITIES, stream(0, "d"))["capacities"]
        for method in (FedAvg(), FedFIbOS(criterion="magnitude"))
    ]
    for capacity in map(str, CAPACITIES):
        assert found[0][capacity]["order_agreement"] == found[1][capacity]["order_agreement"]
        assert found[0][capacity]["order_agreement"]["held"]["mean"] < 1.0


def test_only_the_random_selection_depends_on_the_stream() -> None:
    one, same, other = (diagnosed(FedFIbOS(), generator=stream(s, "d")) for s in (1, 1, 2))
    assert one == same
    for capacity, here in one["capacities"].items():
        there = other["capacities"][capacity]["selections"]
        changed = [name for name, numbers in here["selections"].items() if numbers != there[name]]
        assert changed == ["random"]


def test_the_loss_is_the_one_the_client_trains_with() -> None:
    """A client without one of three classes: masking that class's score changes its gradients and its Fisher."""
    model, method = tiny_model(), FedFIbOS()
    params, state, clients = checkpoint(method, model)
    data = clients[0].data
    assert data is not None
    keep = torch.nonzero(data.labels != 2).flatten()
    found = []
    for absent in ("keep", "mask"):
        local = LocalTraining(steps=1, absent_labels=absent)
        client = replace(clients[0], data=data.subset(keep), local=local)
        found.append(diagnose(method, model, state, params, [client], [0.5], stream(0, "d")))
    plain, masked = (f["capacities"]["0.5"]["selections"]["magnitude"] for f in found)
    assert plain["jaccard"] == masked["jaccard"]
    assert plain["surrogate"] != masked["surrogate"]
    layout = params.layout
    mask = mask_from_scores(params.flat[: layout.num_maskable].abs(), 0.5, layout)
    subset = data.subset(keep)
    present = torch.isin(torch.arange(3), subset.labels).float()
    losses = (cross_entropy, lambda scores, labels: cross_entropy(scores * present, labels))
    for numbers, loss in zip((plain, masked), losses, strict=True):
        error = masking_error(model, params, mask, subset, loss=loss)
        assert numbers["error"]["held"]["mean"] == pytest.approx(error.held)


def test_batch_normalisation_falls_back_to_minibatches_and_says_so() -> None:
    model = model_of(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)))
    method = FedFIbOS()
    params, state, clients = checkpoint(method, model)
    found = diagnose(method, model, state, params, clients, [0.5], stream(0, "d"))
    assert found["fisher_from"] == "minibatch"
    with pytest.raises(ValueError, match="without batch normalisation"):
        diagnose(method, model, state, params, clients, [0.5], stream(0, "d"), fisher_from="per_example")


def test_inputs_are_left_as_they_were() -> None:
    model, method = tiny_model(), FedFIbOS()
    params, state, clients = checkpoint(method, model)
    before, score = params.sha256(), state.tensors["score"].clone()
    diagnose(method, model, state, params, clients, CAPACITIES, stream(0, "d"))
    assert params.sha256() == before
    assert torch.equal(state.tensors["score"], score)


def test_table_shows_every_capacity_and_selection() -> None:
    found = diagnosed(FedFIbOS())
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(diagnosis_table(found))
    text = console.export_text()
    for word in ("0.5", "0.2", "method", "fisher", "ssp", "magnitude", "random", "A5 orders e held", "maintained"):
        assert word in text
    assert f"{found['capacities']['0.5']['selections']['ssp']['surrogate']['mean']:.3g}" in text
    console.print(diagnosis_table(diagnosed(FedAvg())))
    assert "–" in console.export_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": []}, "at least one client, got none"),
        ({"capacities": []}, "at least one capacity, got none"),
        ({"capacities": [0.5, 1.0]}, r"must be in \(0, 1\).* got 1"),
        ({"capacities": [-0.5]}, r"must be in \(0, 1\).* got -0.5"),
    ],
)
def test_bad_calls(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diagnosed(FedFIbOS(), **changes)


def test_a_client_without_data_is_named() -> None:
    client = replace(fleet(0, [0.5])(0)[0], id=31, data=None)
    with pytest.raises(ValueError, match="client 31 has no training example"):
        diagnosed(FedFIbOS(), clients=[client])
