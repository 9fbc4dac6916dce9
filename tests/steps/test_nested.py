"""``local.nested``: steps that train a smaller member of the family that a client holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos import METHODS, Client, LocalTraining, TensorData, federated_round, local_training, model_of
from fedfibos.channels.family import depths, masks_of
from fedfibos.model import Model
from fedfibos.models import build
from fedfibos.round import submodel_for
from fedfibos.steps.nested import drawn_members
from fedfibos.submodel import Mask, holding
from fedfibos.types import download_bytes
from fedfibos.wire.coding import decode_download, encode_download

INPUT, CLASSES, LEVELS = (1, 8, 8), 4, (1.0, 0.5, 0.25, 0.125)
NESTING = {
    "fedfibos": {},
    "fiarse": {},
    "heterofl": {"scaler": False},
    "fedrolex": {"scaler": False},
}


def data(n: int, size: int = 24) -> TensorData:
    generator = torch.Generator().manual_seed(n)
    return TensorData(
        torch.randn(size, *INPUT, generator=generator), torch.randint(CLASSES, (size,), generator=generator)
    )


def cnn(norm: str = "group") -> Model:
    return model_of(build("cnn", CLASSES, INPUT, norm=norm, seed=1), example=torch.zeros(2, *INPUT))


def client(capacity: float = 1.0, t: int = 3, **local) -> Client:
    settings = {"steps": 3, "batch_size": 4, "lr": 0.1, "nested": 0.5, "levels": LEVELS, **local}
    return Client(1, capacity, t, 7, LocalTraining(**settings), data(1))


def family(name: str, model: Model, capacity: float = 1.0, t: int = 3, **local):
    method, params = METHODS[name](**NESTING.get(name, {})), model.initial_params()
    return submodel_for(method, model, method.init(params), params, client(capacity, t, **local))


def test_a_nested_step_by_hand():
    """Weights (2, 1) of class 0 and (0, 0) of class 1, input (1, 1): the member holds each class's first weight.

    At its weights the logits are 2 and 0, p(class 0) = σ(2); the label is 1, so the gradient is ±σ(2) on what the
    member holds, and the step leaves the 1 where it is.
    """
    module = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[2.0, 1.0], [0.0, 0.0]]))
    model = model_of(module)
    inner = Mask(torch.tensor([True, False, True, False]), 2)
    outer = Mask(None, 4, (inner,))
    local = LocalTraining(steps=1, batch_size=1, lr=1.0, nested=1.0, levels=(1.0, 0.5))
    one = Client(0, 1.0, 0, 0, local, TensorData(torch.ones(1, 2), torch.tensor([1])))
    upload = local_training(model, model.initial_params(), outer, one)
    sigma = 1 / (1 + torch.e**-2)
    torch.testing.assert_close(upload.delta, torch.tensor([sigma, 0.0, -sigma, 0.0]))


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("name", NESTING)
@pytest.mark.parametrize("capacity", [1.0, 0.5])
def test_all_steps_nested_at_one_level_are_the_training_of_that_member(name, capacity, norm):
    model = cnn(norm)
    params = model.initial_params()
    outer = family(name, model, capacity, nested=1.0, levels=(0.25,))
    upload = local_training(model, params, outer, client(capacity, nested=1.0, levels=(0.25,)))
    alone = family(name, model, 0.25, nested=0.0)
    expected = local_training(model, params, alone, client(capacity, nested=0.0, levels=()))
    whole, part = torch.zeros(model.layout.size), torch.zeros(model.layout.size)
    outer.add_to(whole, upload.delta, 1.0)
    alone.add_to(part, expected.delta, 1.0)
    torch.testing.assert_close(whole, part, rtol=1e-4, atol=1e-6)  # at capacity 1 a step multiplies in another order
    assert float(part.abs().sum()) > 0


@pytest.mark.parametrize("name", NESTING)
@pytest.mark.parametrize("t", [0, 5, 11])
def test_members_lie_where_the_method_puts_them(name, t):
    """A member in the coordinates of what the client holds is what ``extract`` gives at its capacity."""
    model = cnn()
    method, params = METHODS[name](**NESTING[name]), model.initial_params()
    state = method.init(params)
    outer = family(name, model, 0.5, t)
    assert len(outer.nested) == 2
    for level, member in zip((0.25, 0.125), outer.nested, strict=True):
        expected = holding(method.extract(model, state, params, client(level, t)), model.layout.size)
        local = torch.zeros(outer.local_layout(model.layout).size)
        member.count_in(local, 1.0)
        spread = torch.zeros(model.layout.size)
        outer.add_to(spread, local, 1.0)
        assert torch.equal(spread > 0, expected > 0)


def test_what_each_step_trains_is_drawn_evenly_and_from_the_clients_own_stream():
    outer = Mask(None, 4, (Mask(None, 3), Mask(None, 2)))
    local = LocalTraining(nested=0.5, levels=(1.0, 0.5, 0.25))

    def draw() -> list[int]:
        drawn = drawn_members(outer, local, torch.Generator().manual_seed(0), 6000)
        return [sum(members == (wanted,) for members in drawn) for wanted in (None, *outer.nested)]

    whole, *smaller = draw()
    assert abs(whole - 3000) < 150
    assert all(abs(count - 1500) < 150 for count in smaller)
    assert draw() == [whole, *smaller]
    assert drawn_members(Mask(None, 4), local, torch.Generator(), 2) == [(None,), (None,)]


def test_a_member_that_is_no_smaller_is_left_out_and_the_smallest_client_trains_its_own():
    model = cnn()
    assert len(family("fedfibos", model, 0.5, levels=(1.0, 0.5, 0.25, 0.2500001)).nested) == 2
    assert family("fedfibos", model, 0.125).nested == ()
    assert len(family("heterofl", model, 1.0, levels=(0.5, 0.5 - 1e-9)).nested) == 1


def test_methods_that_do_not_nest_and_missing_levels_are_one_line():
    model = cnn()
    with pytest.raises(ValueError, match=r"needs a method whose submodels nest: .*; those of FedBRB do not: leave out"):
        family("fedbrb", model)
    with pytest.raises(ValueError, match=r"needs local\.levels"):
        family("fedfibos", model, levels=())


def test_momentum_goes_on_outside_the_member():
    """Two steps with momentum .5: coordinates outside the member move by half of their last step in a nested one."""
    model = cnn("none")
    params = model.initial_params()
    inner = family("fedfibos", model, 0.25, nested=0.0)
    outer = Mask(None, model.layout.size, (inner,))
    draws = {seed: drawn_members(outer, client().local, client(t=seed).stream("nested"), 2) for seed in range(20)}
    t = next(t for t, drawn in draws.items() if drawn == [(None,), (inner,)])
    both = local_training(model, params, outer, client(t=t, steps=2, momentum=0.5)).delta
    first = local_training(model, params, outer, client(t=t, steps=1, momentum=0.5)).delta
    assert inner.held is not None
    torch.testing.assert_close(both[~inner.held], 1.5 * first[~inner.held])


@pytest.mark.parametrize("name", [*NESTING, "fedfibos-client"])
@pytest.mark.parametrize("capacity", [1.0, 0.5, 0.25])
def test_the_wire_brings_the_family(name, capacity):
    model = cnn()
    method = METHODS["fedfibos"](sharing="client") if name == "fedfibos-client" else METHODS[name](**NESTING[name])
    params = model.initial_params()
    outer = submodel_for(method, model, method.init(params), params, client(capacity))
    payload = encode_download(client(capacity), outer, params, model)
    got = decode_download(payload, model)
    assert [member.num_held for member in got.submodel.nested] == [member.num_held for member in outer.nested]
    for one, other in zip(got.submodel.nested, outer.nested, strict=True):
        size = outer.local_layout(model.layout).size
        assert torch.equal(holding(one, size), holding(other, size))
    assert len(payload) <= 1.02 * download_bytes(outer, model.layout) + 400


def test_a_family_of_masks_is_one_vector():
    held = torch.tensor([True, True, False, True])
    inner = torch.tensor([False, True, False, True])
    masks = Mask(None, 4, (Mask(held, 3), Mask(inner, 2)))
    assert depths(masks).tolist() == [2, 3, 1, 3]
    back = masks_of(depths(masks), (4, 3, 2))
    assert back.held is None
    assert [m.held.tolist() for m in back.nested] == [held.tolist(), inner.tolist()]


@pytest.mark.parametrize("name", NESTING)
def test_a_round_trains_with_it_and_differs_from_one_without(name):
    model = cnn()
    method, params = METHODS[name](**NESTING[name]), model.initial_params()
    after = {}
    for nested in (0.0, 0.5):
        cohort = [replace(client(level, 0, nested=nested), id=n) for n, level in enumerate(LEVELS)]
        _, after[nested], report = federated_round(method, model, method.init(params), params, cohort)
        assert report.rejected == {}
    assert not torch.equal(after[0.0].flat, after[0.5].flat)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nested": 1.5}, r"nested must be a share of the steps in \[0, 1\], got 1.5"),
        ({"levels": (0.5, 0.0)}, r"levels must be capacities in \(0, 1\]"),
        ({"levels": tuple(1 / n for n in range(1, 18))}, "levels must be at most 16"),
    ],
)
def test_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        LocalTraining(**settings)


def test_levels_are_the_fleets_where_none_are_named():
    assert LocalTraining(nested=0.5).with_levels([0.25, 1.0, 0.25]).levels == (1.0, 0.25)
    assert LocalTraining(nested=0.5, levels=(0.5,)).with_levels([0.25]).levels == (0.5,)
    assert LocalTraining().with_levels([0.25]).levels == ()


def test_a_sandwich_step_takes_the_mean_of_both_gradients():
    """One step of all and one of the smallest member, from the same start: a sandwich step is half of their sum."""
    model = cnn("none")
    params = model.initial_params()
    outer = family("heterofl", model, 1.0)

    def delta(submodel, **local) -> torch.Tensor:
        return local_training(model, params, submodel, client(steps=1, **local)).delta

    both = delta(outer, nested=1.0, nested_rule="sandwich")
    alone = delta(replace(outer, nested=()))
    smallest = torch.zeros(model.layout.size)
    outer.nested[-1].add_to(smallest, delta(outer.nested[-1]), 1.0)
    torch.testing.assert_close(both, (alone + smallest) / 2, rtol=1e-4, atol=1e-7)


def test_distillation_moves_the_smaller_member_and_holds_the_larger_ones_outputs_constant():
    model = cnn("none")
    params = model.initial_params()
    outer = family("heterofl", model, 1.0)
    deltas = {}
    for weight in (0.0, 1.0):
        settings = {"steps": 1, "nested": 1.0, "nested_rule": "sandwich", "distill": weight, "temperature": 2.0}
        deltas[weight] = local_training(model, params, outer, client(**settings)).delta
    difference = deltas[1.0] - deltas[0.0]
    inside = holding(outer.nested[-1], model.layout.size) > 0
    assert float(difference[inside].abs().max()) > 0
    assert float(difference[~inside].abs().max()) == 0.0
