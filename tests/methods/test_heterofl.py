"""One round of HeteroFL on twelve parameters by hand, its nesting, and its classifier rows.

One input x = 1, four hidden units without activation, two classes, no biases; learning rate 1/2, one step, one example.

    W1 = (1/2, 1/2, 1, 1)    W2 = (3/4, 1/4, 1/2, 0)   class 0
                                  (1/4, 3/4, 0, 1/2)   class 1

Client 0, width 1/2, y = 0: holds hidden units 0 and 1. The scaler doubles the hidden layer's output: h = (1, 1), both
scores are 1, so the scores' gradient is (−1/2, 1/2). Gradient of h: −1/2 (3/4, 1/4) + 1/2 (1/4, 3/4) = (−1/4, 1/4); of
W1 twice that.

    Δ W1 = (−1/4, 1/4)    Δ W2 = (−1/4, −1/4), (1/4, 1/4)

Client 1, width 1, y = 1: not scaled, h = (1/2, 1/2, 1, 1), both scores are 1, the scores' gradient is (1/2, −1/2).
Gradient of h: 1/2 (1/2, −1/2, 1/2, −1/2).

    Δ W1 = (1/8, −1/8, 1/8, −1/8)    Δ W2 = (1/8, 1/8, 1/4, 1/4), −(1/8, 1/8, 1/4, 1/4)

Mean over holders: Δ W1 = (−1/16, 1/16, 1/8, −1/8), Δ W2 = (−1/16, −1/16, 1/4, 1/4), (1/16, 1/16, −1/4, −1/4).

    W1 = (9/16, 7/16, 7/8, 9/8)    W2 = (13/16, 5/16, 1/4, −1/4)
                                        (3/16, 11/16, 1/4, 3/4)

Mean over the two participants: units 2 and 3 move half as far.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.methods.fedavg import FedAvg
from fedfibos.methods.heterofl import HeteroFL
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.round import federated_round
from fedfibos.submodel import Mask, Slice, budget
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

ONE_STEP = LocalTraining(steps=1, batch_size=1, lr=0.5)


def two_layers(w1: list[float], w2: list[list[float]]) -> Model:
    module = nn.Sequential(nn.Linear(1, len(w1), bias=False), nn.Linear(len(w1), 2, bias=False))
    module[0].weight.data, module[1].weight.data = torch.tensor(w1)[:, None], torch.tensor(w2)
    return model_of(module, example=torch.zeros(2, 1))


def participant(number: int, capacity: float, *labels: int, local: LocalTraining = ONE_STEP) -> Client:
    return Client(number, capacity, 0, 0, local, TensorData(torch.ones(len(labels), 1), torch.tensor(labels)))


NARROW = [9 / 16, 7 / 16], [13 / 16, 5 / 16], [3 / 16, 11 / 16]


@pytest.mark.parametrize(
    ("average", "wide"),
    [
        ("holders", ([7 / 8, 9 / 8], [1 / 4, -1 / 4], [1 / 4, 3 / 4])),
        ("participants", ([15 / 16, 17 / 16], [3 / 8, -1 / 8], [1 / 8, 5 / 8])),
    ],
)
def test_one_round(average, wide):
    model = two_layers([1 / 2, 1 / 2, 1, 1], [[3 / 4, 1 / 4, 1 / 2, 0], [1 / 4, 3 / 4, 0, 1 / 2]])
    method = HeteroFL(capacity_basis="width", average=average)
    clients = [participant(0, 0.5, 0), participant(1, 1.0, 1)]
    _, params, _ = federated_round(method, model, State(), model.initial_params(), clients)
    assert params.flat.tolist() == [x for a, b in zip(NARROW, wide, strict=True) for x in (*a, *b)]


def test_without_the_scaler_a_slice_trains_as_the_network_it_is():
    """h = (1/2, 1/2): half of the first client's Δ W2, and of W1 too, whose gradient is no longer doubled."""
    model = two_layers([1 / 2, 1 / 2, 1, 1], [[3 / 4, 1 / 4, 1 / 2, 0], [1 / 4, 3 / 4, 0, 1 / 2]])
    method, client = HeteroFL(capacity_basis="width", scaler=False), participant(0, 0.5, 0)
    submodel = method.extract(model, State(), model.initial_params(), client)
    upload = method.train(model, model.initial_params(), submodel, client)
    assert upload.delta.tolist() == [-1 / 8, 1 / 8, -1 / 8, -1 / 8, 1 / 8, 1 / 8]


def test_smaller_slices_are_nested_in_larger_ones_and_within_budget():
    model = model_of(build("resnet8", 4, (1, 8, 8), norm="batch", seed=1), example=torch.zeros(2, 1, 8, 8))
    for basis in ("parameters", "width"):
        method, larger = HeteroFL(capacity_basis=basis), set(range(model.layout.size))
        for capacity in (0.9, 0.5, 0.25, 0.125, 0.0625):
            held = method.extract(model, State(), model.initial_params(), participant(0, capacity, 0))
            assert isinstance(held, Slice)
            assert set(held.index.tolist()) < larger
            larger = set(held.index.tolist())
            if basis == "parameters":
                assert held.layout.num_maskable <= budget(capacity, model.layout.num_maskable)


def test_width_is_a_share_of_the_channels():
    model = two_layers([1.0] * 8, [[1.0] * 8] * 2)
    method = HeteroFL(capacity_basis="width")
    sizes = {
        c: method.extract(model, State(), model.initial_params(), participant(0, c, 0)).num_held
        for c in (1.0, 0.5, 0.3, 0.0625)
    }
    assert sizes == {1.0: 24, 0.5: 12, 0.3: 9, 0.0625: 3}  # ⌈8c⌉ units of one incoming and two outgoing weights


def test_everyone_at_capacity_one_is_fedavg_to_the_bit():
    model = model_of(build("resnet8", 4, (1, 8, 8), norm="batch", seed=1), example=torch.zeros(2, 1, 8, 8))
    local = LocalTraining(steps=2, batch_size=4)
    images = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    clients = [Client(n, 1.0, 0, 0, local, TensorData(images + n, torch.arange(8) % 4)) for n in range(3)]
    ends = [
        federated_round(method, model, State(), model.initial_params(), clients)[1].flat
        for method in (HeteroFL(), FedAvg())
    ]
    assert torch.equal(*ends)


def classifier() -> Model:
    module = nn.Linear(1, 3, bias=False)
    module.weight.data = torch.tensor([[1 / 2], [1 / 2], [1 / 2]])
    return model_of(module, example=torch.zeros(2, 1))


def test_class_rows_are_averaged_over_the_clients_that_have_the_class():
    """Three classes, w = (1/2, 1/2, 1/2), x = 1; client 0 has class 0, client 1 classes 0 and 1, nobody class 2.

    Masked scores of client 0: (1/2, 0, 0): p₀ = e^½/(e^½ + 2); Δ of row 0 is −(1 − p₀)/2.
    Client 1: (1/2, 1/2, 0): p = q = e^½/(2e^½ + 1); the batch's mean gradient in rows 0 and 1 is q − 1/2.
    """
    local = LocalTraining(steps=1, batch_size=2, lr=0.5, absent_labels="mask")
    model, method = classifier(), HeteroFL()
    clients = [participant(0, 1.0, 0, local=local), participant(1, 1.0, 0, 1, local=local)]
    _, params, _ = federated_round(method, model, State(), model.initial_params(), clients)
    e = 2.718281828459045**0.5
    first, second = -(1 - e / (e + 2)) / 2, (e / (2 * e + 1) - 1 / 2) / 2
    assert params.flat.tolist() == pytest.approx([1 / 2 - (first + second) / 2, 1 / 2 - second, 1 / 2], abs=1e-6)


def test_absent_rows_do_not_move_even_with_decay_and_any_average():
    local = LocalTraining(steps=3, batch_size=2, lr=0.5, weight_decay=0.1, absent_labels="mask")
    model = classifier()
    for average in ("holders", "participants"):
        _, params, _ = federated_round(
            HeteroFL(average=average), model, State(), model.initial_params(),
            [participant(0, 1.0, 0, 0, local=local)]
        )  # fmt: skip
        assert params.flat[1:].tolist() == [1 / 2, 1 / 2]
        assert params.flat[0] != 1 / 2


def test_without_masked_labels_every_row_counts():
    model, method, client = classifier(), HeteroFL(), participant(0, 1.0, 0)
    submodel = method.extract(model, State(), model.initial_params(), client)
    assert isinstance(submodel, Mask)
    assert method.train(model, model.initial_params(), submodel, client).counted is None


def test_masked_labels_need_to_know_the_class_rows():
    model = classifier()
    blind = replace(model, table=replace(model.axes, classes={}))
    client = participant(0, 1.0, 0, local=replace(ONE_STEP, absent_labels="mask"))
    method = HeteroFL()
    submodel = method.extract(blind, State(), blind.initial_params(), client)
    with pytest.raises(ValueError, match="absent_labels = 'mask' needs the classifier's class rows"):
        method.train(blind, blind.initial_params(), submodel, client)
