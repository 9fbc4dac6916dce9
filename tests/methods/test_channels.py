"""FedFIbOS on channels, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedfibos.aggregate import Sums
from fedfibos.channels.family import with_nested
from fedfibos.data.images import TensorData
from fedfibos.local import Step
from fedfibos.methods import METHODS, PRESETS, FedFIbOSChannels
from fedfibos.methods._gates import GateObserver
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.round import federated_round, submodel_for
from fedfibos.soundness import fault
from fedfibos.submodel import Slice, full, held_maskable, holding
from fedfibos.training import LocalTraining
from fedfibos.types import NO_ESTIMATE, Client, State, Upload

LOCAL = LocalTraining(steps=1, batch_size=1, lr=1.0)


def two_units():
    """Input 1 -> two hidden channels of values 1 and 2 -> logits; no bias, no activation."""
    module = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0], [2.0]]))
        module[1].weight.copy_(torch.eye(2))
    return model_of(module, example=torch.zeros(2, 1))


def example(label: int) -> TensorData:
    return TensorData(torch.ones(1, 1), torch.tensor([label]))


def softmax(a: float, b: float) -> float:
    return math.exp(a) / (math.exp(a) + math.exp(b))


def test_a_round_on_paper():
    """Client 0 holds both channels, client 1 the first alone: 3 of 6 parameters would be 3, one channel takes 3.

    Logits of client 0 are (1, 2), its label 1: dlogits = (p, -p), p = softmax(1, 2)[0]; the gates' derivatives are
    1·p and 2·(-p). Those of client 1 are (1, 0), its label 0: dlogits = (-q, q), q = softmax(0, 1)[0] = p; its gate's
    is -p. So f̂ = p² for channel 0 in both, 4p² for channel 1: the next slice of one half is channel 1.
    """
    model, method = two_units(), FedFIbOSChannels(ema_rate=0.75)
    params = model.initial_params()
    clients = [Client(0, 1.0, 0, 7, LOCAL, example(1)), Client(1, 0.5, 0, 7, LOCAL, example(0))]
    state = method.init(params)
    first = method.extract(model, state, params, clients[1])
    assert first.units.tolist() == [0]
    state, after, _ = federated_round(method, model, state, params, clients)
    p = softmax(1.0, 2.0)
    score, evidence, ranked = state.tensors["score"].view(3, 2)
    assert score.tolist() == pytest.approx([p * p, 4 * p * p])
    assert evidence.tolist() == pytest.approx([0.25, 0.25])
    assert torch.equal(ranked, score)
    # W2: client 0 steps by -(p, -p)⊗(1, 2), client 1 by -(-p, p)⊗(1,): column 0 is both's mean, column 1 client 0's
    w2 = after.tensors()["1.weight"]
    assert w2.flatten().tolist() == pytest.approx([1.0, -2 * p, 0.0, 1.0 + 2 * p], abs=1e-6)
    # W1: client 0's gradient is W2ᵀ(p, -p) = (p, -p); client 1's is -p for channel 0: their mean is 0 there
    assert after.tensors()["0.weight"].flatten().tolist() == pytest.approx([1.0, 2.0 + p])
    again = replace(clients[1], round=1)
    assert method.extract(model, state, after, again).units.tolist() == [1]
    assert replace(method, criterion="first").extract(model, state, after, again).units.tolist() == [0]


def track(*scores: float, evidence: float = 1.0) -> torch.Tensor:
    return torch.tensor([*scores, *[evidence] * len(scores), *scores])


def moved(method: FedFIbOSChannels, before: torch.Tensor | None, estimate: list[float], t: int) -> list[float]:
    given = torch.tensor(estimate)
    return method._moved(before, given.clamp_min(0.0), given >= 0, t)[-len(estimate) :].tolist()


def test_the_ranked_score_turns_every_so_many_rounds():
    method = FedFIbOSChannels(ema_rate=0.0, every=3)
    assert moved(method, track(1.0, 2.0), [5.0, 6.0], 0) == [1.0, 2.0]
    assert moved(method, track(1.0, 2.0), [5.0, 6.0], 2) == [5.0, 6.0], "the selection of round 3"
    assert moved(method, None, [5.0, -1.0], 0) == [5.0, 0.0], "a first estimate counts at once"
    assert moved(method, None, [5.0, 7.0], 0) == [5.0, 7.0]


def test_a_ranked_score_stays_within_its_hysteresis():
    method = FedFIbOSChannels(ema_rate=0.0, hysteresis=0.5)
    before = track(1.0, 1.0, 1.0, 1.0)
    assert moved(method, before, [1.4, 1.6, 0.7, 0.6], 0) == pytest.approx([1.0, 1.6, 1.0, 0.6])


def test_channels_that_nobody_holds_keep_their_score():
    method = FedFIbOSChannels(ema_rate=0.5)
    assert moved(method, track(1.0, 2.0), [3.0, -1.0], 0) == [2.0, 2.0]


def test_scores_of_clients_and_their_blend():
    model = two_units()
    params = model.initial_params()
    client = Client(3, 0.5, 1, 7, LOCAL)
    state = State({"score": track(1.0, 2.0), "round": torch.tensor(0)}).with_row(3, track(10.0, 0.0))
    chosen = {
        sharing: FedFIbOSChannels(sharing=sharing, blend=0.5).extract(model, state, params, client).units.tolist()
        for sharing in ("shared", "client", "blend")
    }
    assert chosen == {"shared": [1], "client": [0], "blend": [0]}, "5.5 against 1 in the blend"
    low = FedFIbOSChannels(sharing="blend", blend=0.05).extract(model, state, params, client)
    assert low.units.tolist() == [1], "1.45 against 1.9"
    stranger = replace(client, id=4)
    assert FedFIbOSChannels(sharing="blend").extract(model, state, params, stranger).units.tolist() == [1]
    assert FedFIbOSChannels(sharing="client").extract(model, state, params, stranger).units.tolist() == [0], "a prefix"


def test_clients_own_rows_hold_what_they_estimated():
    method = FedFIbOSChannels(sharing="client", ema_rate=0.5)
    model = two_units()
    submodel = model.axes.slice(model.layout, {"0": torch.tensor([1])})
    upload = Upload(submodel, torch.zeros(3), 0.5, 1, torch.tensor([4.0]), "units")
    state = method.update(method.init(model.initial_params()), Client(2, 0.5, 0, 7, LOCAL), upload)
    assert state.rows.get(2).tolist() == [0.0, 4.0, 0.0, 0.5, 0.0, 4.0]


def test_no_estimate_is_told_from_one_that_is_impossible():
    model = two_units()
    upload = Upload(full(model.layout), torch.zeros(6), 0.5, 1, torch.tensor([4.0, NO_ESTIMATE]), "units")
    assert fault(upload) is None
    sums = Sums(model.layout)
    sums.add(upload)
    half = model.axes.slice(model.layout, {"0": torch.tensor([1])})
    sums.add(Upload(half, torch.zeros(3), 0.5, 1, torch.tensor([6.0]), "units"))
    mean, observed = sums.mean_statistic()
    assert (mean.tolist(), observed.tolist()) == ([4.0, 6.0], [True, True])
    wrong = replace(upload, statistic=torch.tensor([4.0, -0.5]))
    assert fault(wrong) == "its statistic has 1 values below 0, down to -0.5: a mean of squares has none"
    assert "values below 0" in fault(replace(upload, observed="all"))


def test_where_a_fleet_starts():
    model = model_of(build("lenet", 4, (1, 8, 8), seed=1, channels=(8, 16), hidden=12), example=torch.zeros(2, 1, 8, 8))
    params, client = model.initial_params(), Client(0, 0.25, 0, 7, LOCAL)
    method = FedFIbOSChannels()
    state = method.init(params)
    start = method.extract(model, state, params, client)
    assert isinstance(start, Slice)
    assert torch.equal(start.index, METHODS["heterofl"]().extract(model, State(), params, client).index)
    whole = replace(method, start="estimate").extract(model, state, params, client)
    assert (whole.held, whole.num_held) == (full(model.layout).held, model.layout.size)


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_slices_are_nested_and_within_their_budget(scope):
    model = model_of(build("resnet8", 4, (1, 8, 8), seed=1, norm="group"), example=torch.zeros(2, 1, 8, 8))
    params, method = model.initial_params(), FedFIbOSChannels(scope=scope)
    scores = torch.rand(model.axes.num_units, generator=torch.Generator().manual_seed(2))
    state = State({"score": torch.cat([scores, torch.ones_like(scores), scores]), "round": torch.tensor(0)})
    before, d = torch.ones(model.layout.size), model.layout.num_maskable
    for capacity in (0.9, 0.5, 0.25, 0.125, 0.0625):
        submodel = method.extract(model, state, params, Client(0, capacity, 1, 7, LOCAL))
        assert held_maskable(submodel, model.layout) <= capacity * d
        held = holding(submodel, model.layout.size)
        assert bool((held <= before).all())
        before = held


def test_what_cannot_be_is_said():
    for field, value in (("ema_rate", 1.0), ("blend", 1.5), ("every", 0), ("hysteresis", -0.1)):
        with pytest.raises(ValueError, match=f"^{field} must be "):
            FedFIbOSChannels(**{field: value})
    model = two_units()
    assert FedFIbOSChannels().cautions(model, [0.5, 1.0]) == []
    (line,) = FedFIbOSChannels().cautions(model, [0.5, 0.25])
    assert line.startswith("no client holds the whole model (largest capacity 0.5): channels outside the first slice")


def three_units():
    """Input 1 -> three hidden channels of values 1, 2, 3 -> two logits, each the sum of some; no bias."""
    module = nn.Sequential(nn.Linear(1, 3, bias=False), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
        module[1].weight.copy_(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    return model_of(module, example=torch.zeros(2, 1))


@pytest.mark.parametrize(("left_out", "unheld"), [("zero", 0.5), ("none", 1.0)])
def test_a_nested_step_is_evidence_of_what_it_holds(left_out, unheld):
    """Two steps by hand of a client that holds channels 1 and 2: one of both, one of channel 2 alone."""
    model = three_units()
    params = model.initial_params()
    outer = model.axes.slice(model.layout, {"0": torch.tensor([1, 2])})
    inner = model.axes.slice(model.layout, {"0": torch.tensor([2])})
    (member,) = with_nested(outer, [inner], model.axes, model.layout).nested
    observer, labels = GateObserver(model, outer, left_out), torch.tensor([0])
    for submodel, held in ((outer, None), (inner, member)):
        work = model.workspace(submodel)
        module = work.load(submodel.gather(params.flat))
        loss = cross_entropy(module(torch.ones(1, 1)), labels)
        gradients = torch.autograd.grad(loss, work.parameters)
        observer(Step(module, torch.ones(1, 1), labels, gradients, cross_entropy, held))
    # all: logits (3, 2), dlogits (-q, q) with q = softmax(2, 3)[0]: gates of channel 1: 2q, of channel 2: -3q
    # the member: logits (3, 0), dlogits (-r, r) with r = softmax(0, 3)[0]: gate of channel 2: -3r
    q, r = softmax(2.0, 3.0), softmax(0.0, 3.0)
    assert observer.estimate().tolist() == pytest.approx([unheld * 4 * q * q, (9 * q * q + 9 * r * r) / 2])


def test_no_step_of_a_channel_is_no_estimate():
    model = three_units()
    outer = model.axes.slice(model.layout, {"0": torch.tensor([1, 2])})
    assert GateObserver(model, outer, "none").estimate().tolist() == [NO_ESTIMATE, NO_ESTIMATE]


@pytest.mark.parametrize("sharing", ["shared", "client"])
def test_nested_steps_train_really_smaller_slices(sharing):
    model = model_of(build("lenet", 4, (1, 8, 8), seed=1, channels=(8, 16), hidden=12), example=torch.zeros(2, 1, 8, 8))
    method, params = FedFIbOSChannels(sharing=sharing), model.initial_params()
    local = LocalTraining(steps=4, batch_size=4, lr=0.05, nested=0.5, levels=(1.0, 0.5, 0.25))
    generator = torch.Generator().manual_seed(1)
    data = TensorData(torch.randn(8, 1, 8, 8, generator=generator), torch.arange(8) % 4)
    state = method.init(params)
    for t in range(3):
        cohort = [Client(n, capacity, t, 7, local, data) for n, capacity in enumerate((1.0, 0.5, 0.25))]
        state, params, report = federated_round(method, model, state, params, cohort)
        assert report.rejected == {}
    submodel = submodel_for(method, model, state, params, cohort[0])
    assert [member.num_held < submodel.num_held for member in submodel.nested] == [True, True]
    assert len({member.widths for member in submodel.nested}) == 2
    row = state.tensors["score"] if sharing == "shared" else state.rows.get(0)
    assert bool((row.view(3, -1)[1] > 0).all())


def test_widths_that_change_leave_no_workspace_behind():
    model = model_of(build("mlp", 4, (1, 8, 8), seed=1, hidden=(40,)), example=torch.zeros(2, 1, 8, 8))
    (axis,) = model.axes.sizes
    pieces = [model.axes.slice(model.layout, {axis: torch.arange(n)}) for n in range(1, 40)]
    full_size = model.workspace(full(model.layout))
    made = [model.workspace(piece) for piece in pieces]
    assert len(model._workspaces) == 17
    assert model.workspace(full(model.layout)) is full_size
    assert model.workspace(pieces[-1]) is made[-1]
    assert model.workspace(pieces[0]) is not made[0]


def test_the_chain_is_made_once_for_all_capacities():
    model = model_of(build("mlp", 4, (1, 8, 8), seed=1, hidden=(40,)), example=torch.zeros(2, 1, 8, 8))
    ranked, costs = torch.arange(40.0), {"parameters": model.parameters}
    made = model.chain(ranked, costs)
    assert model.chain(ranked.clone(), costs).totals is made.totals
    other = model.chain(ranked.flip(0), costs)
    assert [next(iter(of.kept(0.5).values())) for of in (made, other)] == [list(range(21, 40)), list(range(19))]
    both = model.chain(ranked, {**costs, "macs": model.macs})
    assert both is not made
    assert model.chain(ranked.flip(0), costs).totals is other.totals


def test_the_recommended_settings_are_those_of_the_studies():
    """experiments/small/cifar10-nested.toml leaves everything at its default."""
    assert FedFIbOSChannels(**PRESETS["fedfibos-channels"]["recommended"]) == FedFIbOSChannels()
