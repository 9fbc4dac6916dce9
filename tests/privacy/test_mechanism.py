"""A round's sums, made private: what one client can move, the noise, and what the sums are divided by."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfibos.aggregate import Sums
from fedfibos.methods.channels import FedFIbOSChannels
from fedfibos.methods.fedbrb import FedBRB
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.methods.heterofl import HeteroFL
from fedfibos.privacy.mechanism import Level, Private, clip, expected_holders, gaussian, noise_per_coordinate
from fedfibos.privacy.settings import Privacy
from fedfibos.round import federated_round, submodel_for
from fedfibos.soundness import first_state
from fedfibos.submodel import Mask, holding
from fedfibos.training import LocalTraining
from fedfibos.types import NO_ESTIMATE, Client, Upload
from small_models import small_model

LOCAL = LocalTraining(steps=1)
MODEL = small_model()
PRIVACY = Privacy(0.5, 1.0, 0.25, 2.0)
CAPACITIES = {1.0: 1.0, 0.5: 2.0, 0.25: 3.0}
"""Capacity -> expected participants."""


def levels(t=0):
    return tuple(Level(Client(0, capacity, t, 0, LOCAL), count) for capacity, count in CAPACITIES.items())


def cohort(size, t=0):
    chosen = list(CAPACITIES)
    return [Client(n, chosen[n % len(chosen)], t, 0, LOCAL) for n in range(size)]


def test_a_vector_is_scaled_to_the_norm_and_a_shorter_one_is_left():
    assert clip(torch.tensor([3.0, 4.0]), 1.0).tolist() == pytest.approx([0.6, 0.8])
    short = torch.tensor([0.3, 0.4])
    assert clip(short, 1.0) is short
    assert clip(torch.tensor([3e38, 3e38]), 1.0).tolist() == pytest.approx([math.sqrt(0.5)] * 2)


def test_noise_is_a_stream_of_its_own_of_the_wanted_deviation():
    noise = gaussian(3, "update", 5, 100_000, 2.0)
    assert torch.equal(noise, gaussian(3, "update", 5, 100_000, 2.0))
    assert float(noise.std()) == pytest.approx(2.0, rel=0.02)
    for other in (4, "update", 5), (3, "statistic", 5), (3, "update", 6):
        assert not torch.equal(noise, gaussian(*other, 100_000, 2.0))
    assert gaussian(0, "update", 0, 3, 1.0).tolist() == pytest.approx([0.497954, 0.990430, -0.033506], abs=1e-6)


def test_a_round_is_the_clipped_sum_and_the_noise_over_the_expected_holders():
    """Two clients hold everything, one half: a literal case."""
    settings = Privacy(1.0, 0.5, seed=9)
    held = torch.zeros(MODEL.layout.size, dtype=torch.bool)
    held[: MODEL.layout.size // 2] = True
    full, half = Mask(None, held.numel()), Mask(held, int(held.sum()))
    sums = Sums(MODEL.layout)
    private = Private(settings, 9, levels(), MODEL)
    method = HeteroFL()
    first = torch.zeros(MODEL.layout.size)
    first[0], first[-1] = 3.0, 4.0  # of norm 5: becomes 0.6 and 0.8
    second = torch.zeros(MODEL.layout.size)
    second[0] = 0.25  # is left
    for submodel, delta in ((full, first), (half, second)):
        sums.add(private.clipped(method, Upload(submodel, delta, 1.0, 1)))
    params = MODEL.initial_params()
    private.released(method, first_state(method, params), params, sums)
    noise = gaussian(9, "update", 0, MODEL.layout.size, 0.5)
    assert sums.weight == 6.0
    assert float(sums.delta[0]) == pytest.approx(0.85 + float(noise[0]))
    assert float(sums.delta[-1]) == pytest.approx(0.8 + float(noise[-1]))
    counted = sum(
        count * holding(submodel_for(method, MODEL, first_state(method, params), params, level.client), held.numel())
        for level, count in zip(levels(), CAPACITIES.values(), strict=True)
    )
    assert torch.equal(sums.holders, counted)
    assert set(counted.tolist()) == {1.0, 3.0, 6.0}
    assert torch.allclose(sums.mean_delta("holders"), sums.delta / counted)


def test_nothing_moves_where_nobody_is_expected_to_hold():
    private = Private(PRIVACY, 0, levels()[2:], MODEL)
    method, params = HeteroFL(), MODEL.initial_params()
    sums = Sums(MODEL.layout)
    private.released(method, first_state(method, params), params, sums)
    assert float((sums.holders == 0).float().mean()) > 0.5
    assert float(sums.delta[sums.holders == 0].abs().sum()) == 0.0
    assert float(sums.delta[sums.holders > 0].abs().min()) > 0.0
    assert torch.isfinite(sums.mean_delta("holders")).all()


METHODS = {
    "heterofl": HeteroFL(),
    "participants": HeteroFL(average="participants"),
    "fedfibos": FedFIbOS(),
    "dense": FedFIbOS(fisher="dense"),
    "channels": FedFIbOSChannels(),
    "fedbrb": FedBRB(),
}


def any_upload(method, submodel, seed, scale):
    """What a client that may do anything sends."""
    generator = torch.Generator().manual_seed(seed)
    delta = torch.randn(submodel.local_layout(MODEL.layout).size, generator=generator) * scale
    if submodel.indicator is not None:
        delta = delta * submodel.indicator
    upload = Upload(submodel, delta, 1.0, 1)
    observed = getattr(method, "observes", lambda model, t: None)(MODEL, 0)
    if observed is None:
        return upload
    count = MODEL.layout.num_maskable if submodel.units is None else submodel.units.numel()
    if observed == "units" and submodel.units is None:
        count = method.num_units(MODEL)
    statistic = torch.rand(count, generator=generator) * scale
    if observed == "units":
        statistic[0] = NO_ESTIMATE
    if observed == "held" and submodel.indicator is not None:
        statistic *= submodel.indicator[:count]
    return replace(upload, statistic=statistic, observed=observed)


def summed(method, clients, seed, scale):
    """A private round's sums, as the method's aggregate sees them."""
    seen = []

    class Watched(type(method)):
        def aggregate(self, state, params, sums):
            seen.append((sums.delta.clone(), sums.holders.clone(), sums.statistic, sums.observers))
            return super().aggregate(state, params, sums)

    watched = Watched(**{name: getattr(method, name) for name in method.__dataclass_fields__})

    def run(params, jobs):
        for client, submodel in jobs:
            yield client, any_upload(method, submodel, seed + client.id, scale)

    params = MODEL.initial_params()
    private = Private(PRIVACY, 1, levels(), MODEL)
    federated_round(watched, MODEL, first_state(method, params), params, clients, run, private=private)
    return seen[0]


@pytest.mark.parametrize("name", METHODS)
@given(seed=st.integers(0, 2**31), size=st.integers(1, 5), scale=st.sampled_from([1e-3, 1.0, 1e6]))
@settings(max_examples=12, deadline=None)
def test_a_client_moves_the_sums_by_at_most_its_clips(name, seed, size, scale):
    """With and without one client the noise is the same, and so is what sums are divided by."""
    method = METHODS[name]
    everyone = cohort(size)
    with_all, without = (summed(method, clients, seed, scale) for clients in (everyone, everyone[1:]))
    assert float((with_all[0] - without[0]).norm()) <= PRIVACY.clip * (1 + 1e-4)
    assert torch.equal(with_all[1], without[1])
    if with_all[2] is not None:
        assert float((with_all[2] - without[2]).norm()) <= PRIVACY.statistic_clip * (1 + 1e-4)
        assert torch.equal(with_all[3], without[3])


@pytest.mark.parametrize("name", ["heterofl", "dense", "channels"])
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1.0, 1e6]))
@settings(max_examples=10, deadline=None)
def test_another_client_in_its_place_moves_updates_by_two_clips_and_statistics_by_the_root_of_two(name, seed, scale):
    method = METHODS[name]
    clients = cohort(3)
    before = summed(method, clients, seed, scale)
    replaced = [replace(clients[0], id=77), *clients[1:]]
    after = summed(method, replaced, seed, scale)
    assert float((before[0] - after[0]).norm()) <= 2 * PRIVACY.clip * (1 + 1e-4)
    if before[2] is not None:
        assert float((before[2] - after[2]).norm()) <= math.sqrt(2) * PRIVACY.statistic_clip * (1 + 1e-4)


def test_a_large_client_does_reach_its_clip():
    clients = cohort(3)
    with_all, without = (summed(METHODS["dense"], c, 5, 1e3) for c in (clients, clients[1:]))
    assert float((with_all[0] - without[0]).norm()) == pytest.approx(PRIVACY.clip, rel=1e-4)


def test_a_round_without_anybody_is_noise_over_the_same_denominators():
    some, nobody = summed(METHODS["channels"], cohort(3), 0, 1.0), summed(METHODS["channels"], [], 0, 1.0)
    noise = gaussian(1, "update", 0, MODEL.layout.size, PRIVACY.noise * PRIVACY.clip)
    assert torch.equal(nobody[0], noise)
    assert torch.equal(nobody[1], some[1])
    statistic = gaussian(1, "statistic", 0, MODEL.axes.num_units, PRIVACY.statistic_noise * PRIVACY.statistic_clip)
    assert torch.equal(nobody[2], statistic.clamp_min(0.0))
    assert torch.equal(nobody[3], some[3])


def test_a_client_that_cannot_train_counts_for_nothing_and_moves_no_denominator():
    clients, params = cohort(3), MODEL.initial_params()
    private = Private(PRIVACY, 1, levels(), MODEL)

    def run(params, jobs):
        for client, submodel in jobs:
            bad = Upload(submodel, torch.full((submodel.num_held,), torch.nan), 1.0, 1)
            yield client, "it broke" if client.id else bad

    method = HeteroFL()
    _, after, report = federated_round(
        method, MODEL, first_state(method, params), params, clients, run, private=private
    )
    assert sorted(report.rejected) == [0, 1, 2]
    assert math.isnan(report.loss)
    noise = gaussian(1, "update", 0, MODEL.layout.size, 0.5)
    holders = expected_holders(
        [submodel_for(method, MODEL, first_state(method, params), params, level.client) for level in levels()],
        list(CAPACITIES.values()),
        noise,
    )
    assert torch.allclose(after.flat, params.flat - noise / holders)


def test_a_methods_update_sees_no_client_and_no_update():
    seen = []

    class Curious(FedFIbOS):
        def update(self, state, client, upload):
            seen.append((client.id, client.capacity, client.weight, float(upload.delta.abs().sum()), upload.statistic))
            return state

    method, params = Curious(), MODEL.initial_params()
    clients = [replace(client, id=10 + client.id) for client in cohort(3)]

    def run(params, jobs):
        for client, submodel in jobs:
            yield client, any_upload(method, submodel, client.id, 1.0)

    private = Private(PRIVACY, 1, levels(), MODEL)
    federated_round(method, MODEL, first_state(method, params), params, clients, run, private=private)
    assert seen == [(0, 1.0, 1.0, 0.0, None), (0, 0.5, 2.0, 0.0, None), (0, 0.25, 3.0, 0.0, None)]


def test_a_statistic_that_nobody_announced_is_refused():
    private = Private(PRIVACY, 0, levels(), MODEL)
    full = Mask(None, MODEL.layout.size)
    upload = Upload(
        full, torch.zeros(MODEL.layout.size), 1.0, 1, statistic=torch.zeros(MODEL.layout.num_maskable), observed="all"
    )
    with pytest.raises(ValueError, match=r"^an upload has a statistic of 'all': under privacy a method must say so"):
        private.clipped(HeteroFL(), upload)


def test_noise_of_the_mean_is_larger_where_few_hold():
    method, params = HeteroFL(), MODEL.initial_params()
    submodels = [submodel_for(method, MODEL, first_state(method, params), params, level.client) for level in levels()]
    deviation = noise_per_coordinate(submodels, list(CAPACITIES.values()), Privacy(0.5, 3.0), MODEL.layout.size)
    assert sorted(set(deviation.tolist())) == pytest.approx([1.5 / 6, 1.5 / 3, 1.5 / 1])
