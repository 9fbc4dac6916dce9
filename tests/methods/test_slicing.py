"""Capacities as shares of parameters, operations and bytes, for every method that cuts channels."""

from __future__ import annotations

import itertools

import pytest
import torch

from fedfibos.analysis.cautions import cautions
from fedfibos.analysis.cost import Cost, cost
from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.methods._slicing import costs_of
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.submodel import Submodel
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

SLICING = ("heterofl", "fedrolex", "fedbrb", "fedfibos-channels")
MODEL = model_of(build("lenet", 4, (1, 8, 8), seed=1, channels=(8, 16), hidden=12), example=torch.zeros(2, 1, 8, 8))
DATA = TensorData(torch.randn(8, 1, 8, 8), torch.arange(8) % 4)
LOCAL = LocalTraining(steps=1, batch_size=4)


def client(capacity: float, *budget: str, t: int = 1) -> Client:
    return Client(0, capacity, t, 7, LOCAL, DATA, budget=budget or ("parameters",))


def state_of(name: str) -> State:
    """Scores of channels as after some rounds."""
    if name != "fedfibos-channels":
        return State()
    scores = torch.rand(MODEL.axes.num_units, generator=torch.Generator().manual_seed(2))
    return State({"score": torch.cat([scores, torch.ones_like(scores), scores]), "round": torch.tensor(0)})


def extracted(name: str, capacity: float, *budget: str) -> Submodel:
    return METHODS[name]().extract(MODEL, state_of(name), MODEL.initial_params(), client(capacity, *budget))


def widths(submodel: Submodel) -> dict[str, int]:
    return {**MODEL.axes.sizes, **dict(submodel.widths or ())}


def shares(submodel: Submodel) -> dict[str, float]:
    """Of the whole model's, as the polynomials have it."""
    of = {"parameters": MODEL.parameters, "macs": MODEL.macs}
    return {name: cost.at(widths(submodel)) / cost.at(MODEL.axes.sizes) for name, cost in of.items()}


@pytest.mark.parametrize("capacity", [0.5, 0.25, 0.125])
@pytest.mark.parametrize("name", SLICING)
def test_each_bound_is_kept_and_used(name, capacity):
    one = shares(extracted(name, capacity, "parameters"))
    other = shares(extracted(name, capacity, "macs"))
    both = shares(extracted(name, capacity, "parameters", "macs"))
    assert 0.6 * capacity < one["parameters"] <= capacity
    assert 0.6 * capacity < other["macs"] <= capacity
    assert max(both.values()) <= capacity
    assert max(both.values()) > 0.6 * capacity


@pytest.mark.parametrize("name", SLICING)
def test_no_budget_named_is_the_parameters(name):
    named, default = (
        METHODS[name]().extract(MODEL, state_of(name), MODEL.initial_params(), given)
        for given in (client(0.25, "parameters"), Client(0, 0.25, 1, 7, LOCAL, DATA))
    )
    assert torch.equal(named.index, default.index)


@pytest.mark.parametrize("name", SLICING)
def test_what_is_counted_keeps_the_bound(name):
    """The first round's costs, counted on training itself."""
    found: dict[tuple[str, float], Cost] = {
        (budget, capacity): cost(METHODS[name](), MODEL, capacity, DATA, LOCAL, (budget,))
        for budget in ("macs", "memory", "bytes")
        for capacity in (1.0, 0.5, 0.25)
    }
    for capacity in (0.5, 0.25):
        memory = found["memory", capacity].tensors / found["memory", 1.0].tensors
        assert 0.5 * capacity < memory <= capacity
        assert found["macs", capacity].macs <= capacity * found["macs", 1.0].macs
        whole, cut = found["bytes", 1.0], found["bytes", capacity]
        assert cut.bytes_down + cut.bytes_up <= capacity * (whole.bytes_down + whole.bytes_up)
        assert cut.bytes_down + cut.bytes_up > 0.6 * capacity * (whole.bytes_down + whole.bytes_up)


def test_the_next_wider_prefix_takes_more_operations_than_there_are():
    kept = widths(extracted("heterofl", 0.5, "macs"))
    ratio = min(kept[axis] / MODEL.axes.sizes[axis] for axis in kept)
    steps = sorted({k / n for n in (8, 16, 12) for k in range(1, n + 1)})
    wider = MODEL.axes.widths(steps[steps.index(ratio) + 1])
    assert MODEL.macs.at(wider) > 0.5 * MODEL.macs.at(MODEL.axes.sizes)


def test_slices_within_a_budget_are_nested():
    for budget in (("macs",), ("macs", "parameters"), ("bytes",)):
        pieces = [extracted("fedfibos-channels", capacity, *budget) for capacity in (0.8, 0.5, 0.25, 0.125)]
        for large, small in itertools.pairwise(pieces):
            assert bool(torch.isin(small.index, large.index).all())


def test_a_budget_and_widths_do_not_go_together():
    with pytest.raises(ValueError, match=r"federation.budget = \['macs'\] bounds what a slice costs, method.capacity_"):
        METHODS["heterofl"](capacity_basis="width").extract(MODEL, State(), MODEL.initial_params(), client(0.5, "macs"))
    assert costs_of(MODEL, client(0.5), METHODS["heterofl"]().train, "width").keys() == {"parameters"}


def test_too_little_names_what_is_bounded():
    with pytest.raises(ValueError, match=r"capacity 0\.001 allows \d+ of 64\d+ macs, the narrowest slice of the model"):
        extracted("heterofl", 0.001, "macs")


def test_masks_do_not_keep_a_bound_on_operations():
    params = MODEL.initial_params()
    fleet = [client(1.0, "macs", t=0), client(0.5, "macs", t=0)]
    said = {
        name: [
            line
            for line in cautions(METHODS[name](), MODEL, METHODS[name]().init(params), params, fleet)
            if line.startswith("federation.budget")
        ]
        for name in ("fiarse", "fedfibos", "heterofl", "fedfibos-channels")
    }
    line = (
        "federation.budget = ['macs']: masks are trained in the shape of the whole model, whose memory and operations "
        "every capacity takes; their capacities are shares of the parameters"
    )
    assert said == {"fiarse": [line], "fedfibos": [line], "heterofl": [], "fedfibos-channels": []}
