"""One round of FedFIbOS on six parameters, by hand.

The model is a linear layer without bias from three inputs to two classes; its six weights are

    x̃₀ = (1/2, 1/4, 1/8,  1/2, 1/4, 1/8)        rows: class 0, class 1

Equal rows give equal scores for both classes, so each has probability 1/2 and the gradient of the cross-entropy at
an example (x, y) is −x/2 in row y and +x/2 in the other: plain halves, exact in binary. Every client makes K = 1
step on its B = 1 example with learning rate 1/2; the server's rates are η_s = 1 and α = 1/2.

Client 0, γ = 2/3, so k = 4: it holds coordinates 0, 1, 3, 4. Example x = (2, 4, 8), y = 0:

    g = (−1, −2, −4, 1, 2, 4)    Δ = g/2 on the mask = (−1/2, −1, 0, 1/2, 1, 0)    g² = (1, 4, 16, 1, 4, 16)

Client 1, γ = 1/3, so k = 2: it holds coordinates 0 and 3. Example x = (4, 2, 2), y = 1:

    g = (2, 1, 1, −2, −1, −1)    Δ = (1, 0, 0, −1, 0, 0)                            g² = (4, 1, 1, 4, 1, 1)

Holders' average of Δ:       (1/4, −1, 0, −1/4, 1, 0)      so x̃₁ = (1/4, 5/4, 1/8, 3/4, −3/4, 1/8)
Participants' average of Δ:  (1/4, −1/2, 0, −1/4, 1/2, 0)  so x̃₁ = (1/4, 3/4, 1/8, 3/4, −1/4, 1/8)

Scores, first three coordinates (the last three are equal to them), f̄ ← f̄/2 + f̂/2 from f̄⁰ = (1/2, 1/4, 1/8):

    shared, held      f̂ = (5/2, 4, none)    f̄ = (3/2, 17/8, 1/8)
    shared, dense     f̂ = (5/2, 5/2, 17/2)  f̄ = (3/2, 11/8, 69/16)
    shared, literal   f̂ = (5/2, 2, 0)       f̄ = (3/2, 9/8, 1/16)
    client 0, held    f̂ = (1, 4, none)      f̄ = (3/4, 17/8, 1/8)
    client 0, dense   f̂ = (1, 4, 16)        f̄ = (3/4, 17/8, 129/16)
    client 0, literal f̂ = (1, 4, 0)         f̄ = (3/4, 17/8, 1/16)
    client 1, held    f̂ = (4, none, none)   f̄ = (9/4, 1/4, 1/8)
    client 1, dense   f̂ = (4, 1, 1)         f̄ = (9/4, 5/8, 9/16)
    client 1, literal f̂ = (4, 0, 0)         f̄ = (9/4, 1/8, 1/16)
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.aggregate import Sums
from fedfibos.data.images import TensorData
from fedfibos.methods.fedfibos import PRESETS, FedFIbOS
from fedfibos.model import Model, model_of
from fedfibos.params import Params
from fedfibos.round import federated_round
from fedfibos.submodel import Mask
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

START = [1 / 2, 1 / 4, 1 / 8] * 2
SHARED = {"held": [3 / 2, 17 / 8, 1 / 8], "dense": [3 / 2, 11 / 8, 69 / 16], "literal": [3 / 2, 9 / 8, 1 / 16]}
OWN = {
    0: {"held": [3 / 4, 17 / 8, 1 / 8], "dense": [3 / 4, 17 / 8, 129 / 16], "literal": [3 / 4, 17 / 8, 1 / 16]},
    1: {"held": [9 / 4, 1 / 4, 1 / 8], "dense": [9 / 4, 5 / 8, 9 / 16], "literal": [9 / 4, 1 / 8, 1 / 16]},
}
READINGS = ("held", "dense", "literal")
SHARINGS = ("shared", "client", "blend")


def linear() -> Model:
    module = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(START).view(2, 3))
    return model_of(module)


def clients(t: int = 0) -> list[Client]:
    local = LocalTraining(steps=1, batch_size=1, lr=0.5)
    examples = [([2.0, 4.0, 8.0], 0, 2 / 3), ([4.0, 2.0, 2.0], 1, 1 / 3)]
    return [
        Client(n, capacity, t, 0, local, TensorData(torch.tensor([x]), torch.tensor([y])))
        for n, (x, y, capacity) in enumerate(examples)
    ]


def one_round(method: FedFIbOS) -> tuple[State, Params, Model]:
    model = linear()
    params = model.initial_params()
    state, params, _ = federated_round(method, model, method.init(params), params, clients())
    return state, params, model


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("fisher", READINGS)
def test_scores_of_every_reading_and_sharing(fisher, sharing):
    state, _, _ = one_round(FedFIbOS(fisher=fisher, sharing=sharing, prior="magnitude", ema_rate=0.5))
    if sharing != "client":
        assert state.tensors["score"].tolist() == SHARED[fisher] * 2
    if sharing != "shared":
        for n in (0, 1):
            assert state.rows.get(n).tolist() == OWN[n][fisher] * 2


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("fisher", READINGS)
@pytest.mark.parametrize(
    ("average", "after"),
    [
        ("holders", [1 / 4, 5 / 4, 1 / 8, 3 / 4, -3 / 4, 1 / 8]),
        ("participants", [1 / 4, 3 / 4, 1 / 8, 3 / 4, -1 / 4, 1 / 8]),
    ],
)
def test_parameters_after_the_round(fisher, sharing, average, after):
    _, params, _ = one_round(FedFIbOS(fisher=fisher, sharing=sharing, average=average, ema_rate=0.5))
    assert params.flat.tolist() == after


def held(method: FedFIbOS, n: int) -> list[int]:
    state, params, model = one_round(method)
    submodel = method.extract(model, state, params, clients(t=1)[n])
    assert isinstance(submodel, Mask)
    assert submodel.held is not None
    return torch.nonzero(submodel.held).flatten().tolist()


@pytest.mark.parametrize(
    ("settings", "first", "second"),
    [
        # Shared scores: masks are nested. dense: coordinate 2 (69/16) beats 0 (3/2) beats 1 (11/8).
        ({"fisher": "held"}, [0, 1, 3, 4], [1, 4]),
        ({"fisher": "dense"}, [0, 2, 3, 5], [2, 5]),
        ({"fisher": "literal"}, [0, 1, 3, 4], [0, 3]),
        # Own scores, dense: client 0 prefers 2 then 1, client 1 prefers 0.
        ({"sharing": "client"}, [1, 2, 4, 5], [0, 3]),
        ({"sharing": "client", "fisher": "literal"}, [0, 1, 3, 4], [0, 3]),
        # β = 1/2, client 1, dense: (9/4 + 3/2)/2 = 15/8, (5/8 + 11/8)/2 = 1, (9/16 + 69/16)/2 = 39/16.
        ({"sharing": "blend", "blend": 0.5}, [1, 2, 4, 5], [2, 5]),
        # Half of the budget by the shared score: [2, 5] and [2]; the rest by the client's own, as two lines above.
        ({"sharing": "blend", "blend": 0.5, "blend_of": "budget"}, [1, 2, 4, 5], [0, 2]),
        ({"sharing": "blend", "blend": 0.0, "blend_of": "budget"}, [0, 2, 3, 5], [2, 5]),
        ({"sharing": "blend", "blend": 1.0, "blend_of": "budget"}, [1, 2, 4, 5], [0, 3]),
        # ssp ranks f̄|x̃₁|: held, coordinates 0..5: 3/8, 85/32, 1/64, 9/8, 51/32, 1/64.
        ({"fisher": "held", "criterion": "ssp"}, [0, 1, 3, 4], [1, 4]),
        # |x̃₁| = (1/4, 5/4, 1/8, 3/4, 3/4, 1/8); at k = 2 the tie of 3 and 4 goes to position 3.
        ({"criterion": "magnitude"}, [0, 1, 3, 4], [1, 3]),
        # layer scope: one tensor, so the same as global.
        ({"fisher": "dense", "scope": "layer"}, [0, 2, 3, 5], [2, 5]),
    ],
)
def test_next_masks(settings, first, second):
    method = FedFIbOS(prior="magnitude", ema_rate=0.5, **settings)
    assert held(method, 0) == first
    assert held(method, 1) == second


@pytest.mark.parametrize(("sharing", "prior"), [("shared", "none"), ("client", "magnitude"), ("blend", "magnitude")])
def test_a_shared_score_starts_without_magnitudes_by_default(sharing, prior):
    assert FedFIbOS(sharing=sharing).prior == prior
    assert FedFIbOS(sharing=sharing, prior="none").prior == "none"


def test_without_a_warm_start_the_average_is_bias_corrected():
    """Held, shared, α = 1/2: after one estimate the average is f̂, with evidence 1/2; coordinates 2 and 5 have none."""
    method = FedFIbOS(prior="none", ema_rate=0.5)
    state, params, model = one_round(method)
    assert state.tensors["score"].tolist() == [5 / 2, 4, 0] * 2 + [1 / 2, 1 / 2, 0] * 2
    assert method.importance(state, params, clients()[0]).tolist() == [5 / 2, 4, 0] * 2
    wide = method.extract(model, state, params, clients()[0])
    assert torch.nonzero(wide.held).flatten().tolist() == [0, 1, 3, 4]


def test_without_a_warm_start_the_first_masks_are_those_of_magnitude():
    method = FedFIbOS(prior="none")
    model = linear()
    params = model.initial_params()
    submodel = method.extract(model, method.init(params), params, clients()[1])
    assert torch.nonzero(submodel.held).flatten().tolist() == [0, 3]
    assert method.importance(method.init(params), params, clients()[1]) is None


def test_per_example_is_equation_9_and_minibatch_is_line_14():
    """Two examples in one batch: gradients a, b. Line 14: ((a+b)/2)²/2; equation 9: (a² + b²)/2.

    Equal rows, all held. (2, 4, 8) of class 0 gives a = (−1, −2, −4, ...), (4, 2, 2) of class 1 b = (2, 1, 1, ...).
    """
    data = TensorData(torch.tensor([[2.0, 4.0, 8.0], [4.0, 2.0, 2.0]]), torch.tensor([0, 1]))
    client = Client(0, 1.0, 0, 0, LocalTraining(steps=1, batch_size=2, lr=0.5), data)
    model = linear()
    params = model.initial_params()
    expected = {"minibatch": [1 / 8, 1 / 8, 9 / 8] * 2, "per_example": [5 / 2, 5 / 2, 17 / 2] * 2}
    for source, values in expected.items():
        method = FedFIbOS(fisher_from=source)
        submodel = method.extract(model, method.init(params), params, client)
        torch.testing.assert_close(method.train(model, params, submodel, client).statistic, torch.tensor(values))


def test_the_estimate_divides_by_steps_times_batch():
    """K steps on one repeated example at learning rate ~0: f̂ = K g² / (K · 1) = g²."""
    data = TensorData(torch.tensor([[2.0, 4.0, 8.0]]), torch.tensor([0]))
    client = Client(0, 1.0, 0, 0, LocalTraining(steps=4, batch_size=1, lr=1e-30), data)
    model, method = linear(), FedFIbOS()
    params = model.initial_params()
    submodel = method.extract(model, method.init(params), params, client)
    assert method.train(model, params, submodel, client).statistic.tolist() == [1, 4, 16] * 2


def test_dense_every_estimates_everywhere_on_those_rounds():
    method = FedFIbOS(dense_every=2)
    model = linear()
    params = model.initial_params()
    for t, observed in ((0, "all"), (1, "held"), (2, "all")):
        client = clients(t)[1]
        submodel = method.extract(model, method.init(params), params, client)
        upload = method.train(model, params, submodel, client)
        assert upload.observed == observed
        assert upload.statistic[2].item() == (1.0 if observed == "all" else 0.0)


def test_estimate_every_estimates_on_those_rounds_alone_and_the_score_waits_in_between():
    method, model = FedFIbOS(estimate_every=3, ema_rate=0.5), linear()
    params = model.initial_params()
    state = method.init(params)
    scores = []
    for t in range(4):
        client = clients(t)[0]
        submodel = method.extract(model, state, params, client)
        upload = method.train(model, params, submodel, client)
        assert (upload.statistic is not None) == (t in (0, 3))
        before = state
        sums = Sums(model.layout, params.flat.device)
        sums.add(upload, 1.0)
        state, params = method.aggregate(state, params, sums)
        scores.append(torch.equal(state.tensors["score"], before.tensors["score"]))
    assert scores == [False, True, True, False]


def test_dense_rounds_estimate_whatever_estimate_every_says():
    method, model = FedFIbOS(estimate_every=100, dense_every=2), linear()
    params = model.initial_params()
    for t, sent in ((0, True), (1, False), (2, True)):
        client = clients(t)[1]
        submodel = method.extract(model, method.init(params), params, client)
        assert (method.train(model, params, submodel, client).statistic is not None) == sent


def test_random_masks_are_nested_when_shared_and_change_with_the_round():
    method, model = FedFIbOS(criterion="random"), model_of(nn.Linear(30, 10))
    params = model.initial_params()
    local = LocalTraining()

    def mask(n: int, capacity: float, t: int, sharing: str = "shared") -> torch.Tensor:
        method = FedFIbOS(criterion="random", sharing=sharing)
        return method.extract(model, method.init(params), params, Client(n, capacity, t, 0, local)).held

    assert bool((mask(0, 0.2, 0) <= mask(1, 0.5, 0)).all())
    assert not torch.equal(mask(0, 0.5, 0), mask(0, 0.5, 1))
    assert not torch.equal(mask(0, 0.5, 0, "client"), mask(1, 0.5, 0, "client"))
    assert method.train is not None


def test_the_recommended_masks_rank_by_saliency_estimate_now_and_then_and_empty_no_layer():
    method = FedFIbOS(**PRESETS["recommended"])
    assert (method.criterion, method.sharing, method.prior, method.fisher) == ("saliency", "shared", "none", "held")
    assert method.ema_rate == pytest.approx(0.98**10, abs=0.02)  # one observation in ten rounds weighs what ten did
    assert method.estimate_every == 10
    assert (method.scope, method.floor) == ("global", 0.25)


def test_algorithm1_is_the_letter_of_algorithm_1():
    method = FedFIbOS(**PRESETS["algorithm1"])
    assert (method.sharing, method.prior, method.criterion) == ("client", "magnitude", "fisher")
    assert (method.scope, method.average, method.fisher_from) == ("global", "participants", "minibatch")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ema_rate": 1.0}, r"ema_rate must be in \[0, 1\), got 1.0"),
        ({"blend": 1.5}, r"blend must be in \[0, 1\], got 1.5"),
        ({"dense_every": -1}, "dense_every must be 0 or positive, got -1"),
        ({"estimate_every": 0}, "estimate_every must be 1 or more, got 0"),
        ({"criterion": "salience"}, "criterion must be .*did you mean 'saliency'"),
        ({"criterion": "power", "exponents": (0.0, 0.0)}, "exponents must be two numbers, 0 or above and not both 0"),
        ({"criterion": "power", "exponents": (1.0, -1.0)}, "exponents must be two numbers, 0 or above and not both 0"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        FedFIbOS(**settings)


SCORES = torch.tensor([4.0, 1.0, 9.0, 16.0, 1.0, 0.0])
VALUES = torch.tensor([1.0, -3.0, 0.5, 0.25, 2.0, 8.0])
"""f̄ and x̃ of six parameters. f̄: 4 1 9 16 1 0; f̄|x̃|: 4 3 4.5 4 2 0; f̄x̃²: 4 9 2.25 1 4 0; |x̃|: 1 3 .5 .25 2 8."""


def ranking(method: FedFIbOS) -> list[int]:
    """Positions from the highest score to the lowest, of equal ones the first."""
    model = linear()
    params = Params(model.layout, VALUES)
    evidence = torch.ones(6) if method.fisher == "held" else torch.ones(1)
    state = State({"score": torch.cat([SCORES, evidence])})
    order = []
    for count in range(1, 7):
        held = method.extract(model, state, params, Client(0, count / 6, 0, 0, LocalTraining())).held
        new = set(range(6)) if held is None else set(held.nonzero()[:, 0].tolist())
        (added,) = new - set(order)
        order.append(added)
    return order


def snip(score: torch.Tensor, magnitude: torch.Tensor, observed: torch.Tensor | None) -> torch.Tensor:
    return score.sqrt() * magnitude


@pytest.mark.parametrize(
    ("settings", "order"),
    [
        ({}, [3, 2, 0, 1, 4, 5]),
        ({"criterion": "ssp"}, [2, 0, 3, 1, 4, 5]),
        ({"criterion": "saliency"}, [1, 0, 4, 2, 3, 5]),
        ({"criterion": "magnitude"}, [5, 1, 4, 0, 2, 3]),
        ({"criterion": "power", "exponents": (1.0, 0.0)}, [3, 2, 0, 1, 4, 5]),
        ({"criterion": "power", "exponents": (1.0, 1.0)}, [2, 0, 3, 1, 4, 5]),
        ({"criterion": "power", "exponents": (0.5, 1.0)}, [1, 0, 4, 2, 3, 5]),
        ({"criterion": snip}, [1, 0, 4, 2, 3, 5]),
    ],
)
def test_what_every_criterion_ranks(settings, order):
    assert ranking(FedFIbOS(**settings)) == order


def test_saliency_keeps_its_order_where_squares_would_vanish():
    """f̄ = 1e-30 and 4e-30 with x̃ = 1e-6: f̄x̃² is below float32's smallest number, the order is not."""
    model = linear()
    params = Params(model.layout, torch.full((6,), 1e-6))
    score = torch.tensor([1e-30, 4e-30, 2e-30, 1e-31, 1e-32, 1e-33])
    state = State({"score": torch.cat([score, torch.ones(6)])})
    held = FedFIbOS(criterion="saliency").extract(model, state, params, Client(0, 0.5, 0, 0, LocalTraining())).held
    assert held.tolist() == [True, True, True, False, False, False]


def test_a_criterion_of_ones_own_is_not_asked_before_there_is_evidence():
    def never(*_: object) -> torch.Tensor:
        raise AssertionError

    method, model = FedFIbOS(criterion=never), linear()
    params = model.initial_params()
    held = method.extract(model, method.init(params), params, Client(0, 1 / 3, 0, 0, LocalTraining())).held
    assert held.tolist() == [True, False, False, True, False, False]
