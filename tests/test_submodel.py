"""Budgets: how many coordinates a capacity is, over the whole model and tensor by tensor."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfibos.methods import FIARSE, FedFIbOS
from fedfibos.model import model_of
from fedfibos.params import Layout, Params
from fedfibos.submodel import budget, layer_budgets, layer_floors, mask_from_scores
from fedfibos.training import LocalTraining
from fedfibos.types import Client


def test_a_budget_of_a_billion_parameters_is_rounded_up():
    """γd = 62,500,000.0625: the sixteenth is no rounding error."""
    assert budget(0.0625, 1_000_000_001) == 62_500_001
    assert budget(0.1, 30) == 3
    assert budget(0.1, 3_000_000_000) == 300_000_000


@pytest.mark.parametrize(
    ("capacity", "d", "k"),
    [
        (0.97598, 8_279_184, 8_080_319),  # 8080318.00032
        ((1 - 0.9) * 0.5, 100, 5),
        (0.1 + 0.2, 10, 3),
        (2 / 3, 3, 2),
        (1 / 3, 300_000_001, 100_000_001),
        (1e-9, 10, 1),
        (0.123456789, 1_000_000_000, 123_456_789),
    ],
)
def test_a_capacity_is_the_fraction_that_a_reader_sees(capacity, d, k):
    assert budget(capacity, d) == k


def test_a_tensor_lifted_to_one_coordinate_is_not_given_a_second_before_those_below_their_share():
    """γ = 1/4: shares .75 and .25 are lifted to 1; of the rest 808.85 and 1360.66 are furthest above their floors."""
    sizes = [1585, 6653, 3, 130, 5442, 1, 3235, 101]
    names = tuple(f"t{i}" for i in range(len(sizes)))
    layout = Layout(names, tuple((size,) for size in sizes), len(sizes))
    counts = layer_budgets(0.25, layout)
    assert counts == [396, 1663, 1, 32, 1361, 1, 809, 25]
    assert sum(counts) == budget(0.25, sum(sizes))


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12).filter(any), st.floats(0.002, 1.0))
@settings(max_examples=200, deadline=None)
def test_every_tensor_gets_its_share_and_at_least_one(sizes, capacity):
    layout = Layout(tuple(map(str, range(len(sizes)))), tuple((size,) for size in sizes), len(sizes))
    counts, total = layer_budgets(capacity, layout), budget(capacity, sum(sizes))
    assert sum(counts) == max(total, sum(size > 0 for size in sizes))
    for count, size in zip(counts, sizes, strict=True):
        assert min(1, size) <= count <= min(size, max(1, math.ceil(total * size / sum(sizes))))


def test_floors_are_those_of_the_fraction_too():
    """⌊.29 · 100⌋ is 29; the product of the two floats is below it."""
    module = nn.Linear(100, 1, bias=False)
    module.weight.data = torch.arange(1.0, 101.0)[None]
    model = model_of(module)
    submodel = FIARSE(rounding="floor").extract(
        model, None, model.initial_params(), Client(0, 0.29, 0, 0, LocalTraining())
    )
    assert submodel.num_held == 29


def test_a_core_by_the_shared_score_takes_no_more_of_a_tensor_than_the_client_has_of_it():
    """By largest remainders a tensor can lose when the whole grows: 7, 1, 7, 1 at γ = .05, but 6, 2, 6, 1 at .045."""
    model = model_of(nn.Sequential(nn.Linear(4, 35), nn.ReLU(), nn.Linear(35, 4)))
    assert layer_budgets(0.05, model.layout) == [7, 1, 7, 1]
    assert layer_budgets(0.045, model.layout) == [6, 2, 6, 1]
    method = FedFIbOS(sharing="blend", blend_of="budget", blend=0.1, scope="layer", prior="magnitude")
    flat = torch.rand(model.layout.size, generator=torch.Generator().manual_seed(0)) + 0.1
    params = Params(model.layout, flat)
    client = Client(0, 0.05, 0, 0, LocalTraining())
    held = method.extract(model, method.init(params), params, client).held
    for (_, start, stop), count in zip(model.layout.maskable(), layer_budgets(0.05, model.layout), strict=True):
        best = set(flat[start:stop].topk(count).indices.tolist())
        assert set(held[start:stop].nonzero().flatten().tolist()) == best


TWO = Layout(("a", "b"), ((4,), (2,)), 2)
SCORES = torch.tensor([9.0, 8, 7, 6, 1, 2])


@pytest.mark.parametrize(
    ("capacity", "floor", "held"),
    [
        (0.5, 0.0, [0, 1, 2]),  # the second tensor is empty
        (0.5, 0.5, [0, 1, 5]),  # each is sure of one: ⌊.25·4⌋ and, lifted, ⌊.25·2⌋
        (0.5, 1.0, [0, 1, 5]),  # ⌊.5·4⌋ = 2 and ⌊.5·2⌋ = 1 fill the budget
        (5 / 6, 0.2, [0, 1, 2, 3, 5]),
        (1 / 6, 1.0, [0]),  # a budget of one: the better of the two that would be sure
        (1.0, 0.5, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_floor_keeps_the_best_of_every_tensor(capacity, floor, held):
    mask = mask_from_scores(SCORES, capacity, TWO, floor=floor)
    found = range(6) if mask.held is None else mask.held.nonzero().flatten().tolist()
    assert list(found) == held
    assert mask.num_held == len(held) == budget(capacity, 6)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=8).filter(any), st.floats(0.01, 0.99), st.floats(0.01, 1.0))
@settings(max_examples=100, deadline=None)
def test_with_a_floor_the_budget_is_exact_and_no_tensor_falls_below_it(sizes, capacity, floor):
    layout = Layout(tuple(map(str, range(len(sizes)))), tuple((size,) for size in sizes), len(sizes))
    scores = torch.rand(sum(sizes), generator=torch.Generator().manual_seed(len(sizes)))
    mask, least = mask_from_scores(scores, capacity, layout, floor=floor), layer_floors(floor, capacity, layout)
    held = torch.ones(sum(sizes), dtype=torch.bool) if mask.held is None else mask.held
    assert int(held.sum()) == mask.num_held == budget(capacity, sum(sizes))
    if sum(least) <= mask.num_held:
        for (_, start, stop), count in zip(layout.maskable(), least, strict=True):
            assert int(held[start:stop].sum()) >= count


def test_masks_with_a_floor_nest():
    model = model_of(nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 30), nn.ReLU(), nn.Linear(30, 4)))
    scores = torch.rand(model.layout.num_maskable, generator=torch.Generator().manual_seed(0))
    scores[model.layout.num_maskable // 2 :] *= 0.01  # one end of the model ranks far below the other
    masks = [mask_from_scores(scores, c, model.layout, floor=0.25).held for c in (0.5, 0.25, 0.125, 0.0625)]
    for larger, smaller in pairwise(masks):
        assert not (smaller & ~larger).any()


@pytest.mark.parametrize("floor", [-0.1, 1.5])
def test_a_floor_is_a_share(floor):
    with pytest.raises(ValueError, match=r"floor must be in \[0, 1\]"):
        FedFIbOS(floor=floor)


@pytest.mark.parametrize(
    ("scores", "got"),
    [
        (torch.ones(9), "got torch.float32 of shape (9,)"),
        (torch.ones(8, dtype=torch.int64), "got torch.int64 of shape (8,)"),
        (torch.ones(2, 4), "got torch.float32 of shape (2, 4)"),
        (None, "got NoneType"),
    ],
)
def test_scores_are_one_float_a_maskable_parameter(scores, got):
    layout = Layout(("a", "norm"), ((8,), (2,)), 1)
    with pytest.raises(ValueError, match=r"scores must be floats of shape .8,., one a maskable parameter") as caught:
        mask_from_scores(scores, 0.5, layout)
    assert str(caught.value).endswith(got)
