"""Proposition 2: how fast the prior leaves the moving average, through the real code and in expectation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_federation import fleet, random_params, tiny_model
from torch import Tensor

from fedfibos.aggregate import Sums
from fedfibos.analysis.theory import ema_bias, ema_bias_partial
from fedfibos.common.streams import stream
from fedfibos.methods._fisher import Ema
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.round import sample
from fedfibos.submodel import Mask, full
from fedfibos.types import Upload

fixed = settings(derandomize=True, deadline=None, max_examples=60)
rates = st.floats(0.0, 0.99)


def decayed(alpha: float, r: int, prior: Tensor, target: Tensor) -> Tensor:
    """α^r f̄⁰ + (1 − α^r) F."""
    bias = ema_bias(alpha, r)
    return prior.double() * bias + target.double() * (1.0 - bias)


@fixed
@given(rates, st.integers(0, 60), st.integers(0, 2**31))
def test_ema_towards_a_fixed_target(alpha: float, r: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    prior, target = torch.rand(5, generator=generator), torch.rand(5, generator=generator)
    ema = Ema(alpha, warm=True, per_coordinate=False)
    vector = ema.start(prior)
    for _ in range(r):
        vector = ema.step(vector, target, None)
    torch.testing.assert_close(vector.double(), decayed(alpha, r, prior, target), rtol=1e-5, atol=1e-7)


@fixed
@given(rates, st.integers(1, 60), st.booleans())
def test_ema_without_a_warm_start_has_no_bias_at_all(alpha: float, r: int, per_coordinate: bool) -> None:
    """The evidence is 1 − α^r, and f̄ over it is the target after every observation."""
    target = torch.tensor([1e-6, 0.5, 3.0])
    ema = Ema(alpha, warm=False, per_coordinate=per_coordinate)
    vector = ema.start(torch.ones(3))
    for _ in range(r):
        vector = ema.step(vector, target, None)
    assert vector[3].item() == pytest.approx(1.0 - ema_bias(alpha, r), rel=1e-5)
    score, unseen = ema.importance(vector, 3)
    torch.testing.assert_close(score, target, rtol=1e-5, atol=0.0)
    assert unseen is None


@fixed
@given(rates, st.integers(1, 20), st.integers(0, 2**31))
def test_without_a_warm_start_the_average_is_that_of_what_was_seen(alpha: float, r: int, seed: int) -> None:
    """Per coordinate: Σ α^(age) f̂ / Σ α^(age) over its own observations; evidence 1 − α^(their number)."""
    generator = torch.Generator().manual_seed(seed)
    ema = Ema(alpha, warm=False, per_coordinate=True)
    vector = ema.start(torch.rand(6, generator=generator))
    seen: list[list[float]] = [[] for _ in range(6)]
    for _ in range(r):
        estimate, observed = torch.rand(6, generator=generator), torch.rand(6, generator=generator) < 0.6
        vector = ema.step(vector, estimate, observed)
        for i in range(6):
            if observed[i]:
                seen[i].append(float(estimate[i]))
    score, known = ema.importance(vector, 6)
    for i, values in enumerate(seen):
        weights = [alpha**age for age in reversed(range(len(values)))]
        wanted = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights) if values else 0.0
        assert float(score[i]) == pytest.approx(wanted, rel=1e-4, abs=1e-7)
        assert float(vector[6 + i]) == pytest.approx(1 - alpha ** len(values), abs=1e-6)
    assert (known is None) == all(seen)
    assert known is None or known.tolist() == [bool(values) for values in seen]


def test_the_papers_numbers() -> None:
    """α = .9: a prior of 1e-2 falls below 1e-6 at r = 88, α = .8: at r = 42 participations."""
    for alpha, first in ((0.9, 88), (0.8, 42)):
        assert ema_bias(alpha, first) * 1e-2 < 1e-6 <= ema_bias(alpha, first - 1) * 1e-2


@pytest.mark.parametrize("fisher", ["dense", "held", "literal"])
def test_per_client_score_decays_with_its_own_participations(fisher: str) -> None:
    """FedFIbOS.update with sharing = client: α^r for a client that took part r times; the others keep the prior.

    ``held`` meets the proposition's condition: a coordinate off the mask was never active, r = 0, and stays.
    ``literal`` doesn't: off the mask its estimate is 0, and the score decays towards 0 instead of F.
    """
    alpha, model = 0.7, tiny_model()
    params, d = random_params(model, 0), model.layout.num_maskable
    method = FedFIbOS(fisher=fisher, sharing="client", ema_rate=alpha)
    clients = fleet(0, [0.5, 0.5, 0.5])(0)
    prior, target = params.flat[:d].abs(), torch.rand(d, generator=stream(0, "target"))
    held = torch.ones(model.layout.size, dtype=torch.bool)
    held[: d // 2] = False
    submodel = Mask(held, int(held.sum()))
    statistic = target if fisher == "dense" else submodel.gather(target)
    upload = Upload(submodel, torch.zeros_like(params.flat), 0.0, 1, statistic, "held" if fisher == "held" else "all")
    state = method.init(params)
    for r in range(1, 9):
        state = method.update(state, clients[1], upload)
        row = state.rows.get(1)
        assert row is not None
        torch.testing.assert_close(
            row[held[:d]].double(), decayed(alpha, r, prior, target)[held[:d]], rtol=1e-5, atol=0
        )
        off = {"dense": decayed(alpha, r, prior, target), "held": prior, "literal": prior.double() * alpha**r}[fisher]
        torch.testing.assert_close(row[~held[:d]].double(), off[~held[:d]].double(), rtol=1e-5, atol=0)
    assert state.rows.clients() == [1]
    torch.testing.assert_close(state.tensors["prior"], prior, rtol=0, atol=0)


def test_shared_score_decays_with_rounds() -> None:
    """FedFIbOS.aggregate with sharing = shared: every round is an observation, whoever took part."""
    alpha, model = 0.8, tiny_model()
    params, d = random_params(model, 1), model.layout.num_maskable
    method = FedFIbOS(prior="magnitude", ema_rate=alpha)
    target = torch.rand(d, generator=stream(1, "target"))
    upload = Upload(full(model.layout), torch.zeros_like(params.flat), 0.0, 1, target)
    state = method.init(params)
    for r in range(1, 9):
        sums = Sums(model.layout)
        for _ in range(3):
            sums.add(upload)
        state, _ = method.aggregate(state, params, sums)
        wanted = decayed(alpha, r, params.flat[:d].abs(), target)
        torch.testing.assert_close(state.tensors["score"].double(), wanted, rtol=1e-5, atol=0)


def test_an_unbiased_noisy_estimate_leaves_the_same_bias_in_the_mean() -> None:
    """E[f̄] over 20 000 coordinates of exponential noise around F = 1; standard error of the mean < 1/√20 000."""
    generator = torch.Generator().manual_seed(5)
    ema = Ema(0.6, warm=True, per_coordinate=False)
    vector = ema.start(torch.full((20_000,), 4.0))
    for r in range(1, 7):
        vector = ema.step(vector, torch.empty(20_000).exponential_(generator=generator), None)
        assert float(vector.mean()) == pytest.approx(0.6**r * 4.0 + (1 - 0.6**r), abs=4 / math.sqrt(20_000))


@fixed
@given(rates, st.floats(0.0, 1.0), st.integers(0, 80))
def test_partial_participation_is_the_binomial_expectation(alpha: float, p: float, t: int) -> None:
    """Σ_r (t choose r) p^r (1−p)^(t−r) α^r = (1 − p + pα)^t."""
    exact = math.fsum(math.comb(t, r) * p**r * (1 - p) ** (t - r) * ema_bias(alpha, r) for r in range(t + 1))
    assert ema_bias_partial(alpha, p, t) == pytest.approx(exact, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("num_clients", "cohort_size", "alpha", "rounds"), [(20, 4, 0.8, 30), (10, 1, 0.5, 20)])
def test_partial_participation_in_simulated_rounds(
    num_clients: int, cohort_size: int, alpha: float, rounds: int
) -> None:
    """The mean of α^R over clients and 200 runs of the real cohort sampler, within five standard errors.

    Clients of one run are not independent (a cohort has a fixed size), so the error is that of the runs' means.
    """
    means = []
    for seed in range(200):
        taken = [0] * num_clients
        for t in range(rounds):
            for client in sample(num_clients, cohort_size, seed, t):
                taken[client] += 1
        means.append(sum(ema_bias(alpha, r) for r in taken) / num_clients)
    observed = torch.tensor(means, dtype=torch.float64)
    tolerance = 5 * float(observed.std()) / math.sqrt(len(means))
    expected = ema_bias_partial(alpha, cohort_size / num_clients, rounds)
    assert abs(float(observed.mean()) - expected) < tolerance
    assert tolerance < 0.2 * expected  # tight enough to mean something


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ema_bias(1.0, 2), "alpha must be in"),
        (lambda: ema_bias(0.5, -1), "0 or positive, got -1"),
        (lambda: ema_bias_partial(0.5, 1.5, 2), "participation must be in"),
    ],
)
def test_bad_rates(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
