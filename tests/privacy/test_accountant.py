"""Epsilon: the library's own numbers, the exact one of a Gaussian, and what each way of sampling may claim."""

import builtins
import math

import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from fedfibos.common.extras import MissingExtraError
from fedfibos.privacy.accountant import Ledger, check_installed, exact
from fedfibos.privacy.settings import Privacy


def spent(settings, clients, cohort, rounds, statistic=False, participants=(), **of):
    ledger = Ledger(settings, clients, cohort, **of)
    for _ in range(rounds):
        ledger.spend(participants, statistic)
    return ledger.epsilon()


def gaussian_delta(sigma, epsilon):
    """δ of the Gaussian mechanism of sensitivity 1 (Balle and Wang 2018, theorem 8)."""
    return norm.cdf(1 / (2 * sigma) - epsilon * sigma) - math.exp(epsilon) * norm.cdf(
        -1 / (2 * sigma) - epsilon * sigma
    )


def test_one_round_of_everybody_is_the_gaussian_mechanism():
    epsilon = spent(Privacy(3.0, 1.0, sampling="poisson"), 10, 10, 1)
    assert epsilon == pytest.approx(4.377178, abs=1e-6)
    assert gaussian_delta(1.0, epsilon) == pytest.approx(1e-5, rel=1e-6)


def test_replacing_a_client_of_everybody_costs_what_half_the_noise_does():
    fixed, poisson = (spent(Privacy(1.0, z, sampling=s), 10, 10, 3) for s, z in (("fixed", 2.0), ("poisson", 1.0)))
    assert fixed == poisson == pytest.approx(exact(3.0, 1e-5))


def test_poisson_cohorts_are_those_of_the_published_formula():
    """Mironov, Talwar, Zhang 2019 at whole orders, and Canonne, Kamath, Steinke 2020 from Rényi to (ε, δ)."""
    q, z, rounds, delta = 256 / 60_000, 1.3, 3515, 1e-5

    def renyi(order):
        terms = (math.comb(order, k) * (1 - q) ** (order - k) * q**k * math.exp(k * (k - 1) / (2 * z**2))
                 for k in range(order + 1))  # fmt: skip
        return math.log(math.fsum(terms)) / (order - 1)

    wanted = min(
        rounds * renyi(order) + math.log1p(-1 / order) - math.log(delta * order) / (order - 1) for order in range(2, 30)
    )
    assert spent(Privacy(1.5, 1.3, sampling="poisson"), 60_000, 256, rounds) == pytest.approx(wanted, rel=1e-6)
    assert wanted == pytest.approx(0.9544, abs=1e-4)


def test_poisson_cohorts_are_the_librarys_event():
    accountant = RdpAccountant()
    accountant.compose(PoissonSampledDpEvent(0.2, GaussianDpEvent(2.0)), 50)
    ours = spent(Privacy(1.0, 2.0, sampling="poisson", delta=1e-3), 100, 20, 50)
    assert ours == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-12) == pytest.approx(2.7355, abs=1e-4)


def test_a_cohort_of_fixed_size_replaces_one_and_pays_for_two_clips():
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(100, 20, GaussianDpEvent(4.0 / 2)), 50)
    ours = spent(Privacy(1.0, 4.0, delta=1e-3), 100, 20, 50)
    assert ours == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-12)
    assert ours > spent(Privacy(1.0, 4.0, delta=1e-3, sampling="poisson"), 100, 20, 50)


def test_scores_are_released_with_the_updates_of_the_same_cohort():
    """Two Gaussians on one sample, which is not two samples."""
    settings = Privacy(1.0, 2.0, 1.0, 3.0, delta=1e-3, sampling="poisson")
    accountant = RdpAccountant()
    both = ComposedDpEvent([GaussianDpEvent(2.0), GaussianDpEvent(3.0)])
    accountant.compose(PoissonSampledDpEvent(0.2, both), 10)
    accountant.compose(PoissonSampledDpEvent(0.2, GaussianDpEvent(2.0)), 30)
    ledger = Ledger(settings, 100, 20)
    for t in range(40):
        ledger.spend((), t % 4 == 0)
    assert ledger.epsilon() == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-9)


def test_replaced_scores_are_the_root_of_two_apart_and_two_where_they_may_be_negative():
    settings = Privacy(1.0, 2.0, 1.0, 1.0)
    assert spent(settings, 5, 5, 1, statistic=True) == pytest.approx(exact(1.0 + 2.0, 1e-5))
    assert spent(settings, 5, 5, 1, statistic=True, signed={"statistic"}) == pytest.approx(exact(1.0 + 4.0, 1e-5))


def test_a_known_cohort_costs_the_client_that_was_in_most_of_them():
    ledger = Ledger(Privacy(1.0, 2.0, sampling="known"), 10, 2)
    assert ledger.epsilon() == 0.0
    for cohort in ([0, 1], [0, 2], [3, 4]):
        ledger.spend(cohort, False)
    assert ledger.epsilon() == pytest.approx(exact(2 / 4, 1e-5))
    before = ledger.epsilon()
    ledger.spend([5, 6], False)
    assert ledger.epsilon() == before


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "known"])
def test_epsilon_never_falls_and_does_not_depend_on_how_often_it_is_asked(sampling):
    settings = Privacy(1.0, 2.0, delta=1e-3, sampling=sampling)
    asked, silent = Ledger(settings, 20, 5), Ledger(settings, 20, 5)
    found = []
    for t in range(4):
        for ledger in (asked, silent):
            ledger.spend([t % 2, 3], False)
        found.append(asked.epsilon())
    assert found == sorted(found)
    assert asked.epsilon() == silent.epsilon() == found[-1]


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "dp_accounting":
            raise ModuleNotFoundError("No module named 'dp_accounting'", name="dp_accounting")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"^dp_accounting is not installed: pip install 'fedfibos\[privacy\]'$"):
        check_installed()
