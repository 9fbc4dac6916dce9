"""The largest submodel that a class of devices can hold, under every method."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn

from fedfibos.analysis.cost import cost
from fedfibos.analysis.fitting import CAPACITIES, Costs, Work, examples_of, fits, round_seconds
from fedfibos.analysis.process_memory import BESIDE, after_imports
from fedfibos.config.devices import Device
from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS, FedAvg, FedFIbOSChannels, HeteroFL
from fedfibos.methods._slicing import step_memory
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

MODEL = model_of(build("lenet", 4, (1, 8, 8), seed=1, channels=(8, 16), hidden=12), example=torch.zeros(2, 1, 8, 8))
DATA = TensorData(torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4)
WORK = Work(DATA, LocalTraining(steps=3, batch_size=4), ("parameters",), 12)
SLICE = BESIDE + 110_000
"""Memory for a slice of some 60 kB of tensors."""
SLICES, MASKS = ("heterofl", "fedrolex", "fedbrb", "fedfibos-channels"), ("fiarse", "fedfibos")


def fit(method, **limits):
    return fits(method, MODEL, [Device("one", 1.0, **limits)], WORK)[0]


def within(found, device, costs):
    seconds = round_seconds(device, found, WORK.examples, costs.whole_macs)
    return (
        (device.memory is None or found.memory <= device.memory)
        and (device.bytes is None or found.bytes_down + found.bytes_up <= device.bytes)
        and (device.seconds is None or seconds <= device.seconds)
    )


@pytest.mark.parametrize("name", [*SLICES, *MASKS, "fedavg"])
def test_what_is_said_without_training_is_what_training_counts(name):
    method = METHODS[name]()
    costs = Costs(method, MODEL, WORK, 1)
    for capacity in (1.0, 0.5, 0.2):
        counted, said = cost(method, MODEL, capacity, DATA, WORK.local), costs.of(capacity)
        for key in ("capacity", "parameters", "share", "macs", "bytes_down", "bytes_up"):
            assert getattr(said, key) == getattr(counted, key), key
        assert 0.8 * counted.tensors <= said.tensors <= 1.4 * counted.tensors
        if name not in SLICES or capacity == 1.0:
            assert said.tensors == counted.tensors
            assert said.memory == counted.memory - after_imports()


@pytest.mark.parametrize("name", [*SLICES, *MASKS])
@pytest.mark.parametrize(
    "limits",
    [
        {"memory": SLICE},
        {"memory": BESIDE + 10_000},
        {"bytes": 9_000},
        {"seconds": 1.0, "macs_per_second": 500_000.0},
        {"memory": SLICE, "bytes": 20_000, "seconds": 1.0, "examples_per_second": 5.0},
    ],
)
def test_the_largest_capacity_within_every_limit(name, limits):
    method, device = METHODS[name](), Device("one", 1.0, **limits)
    costs = Costs(method, MODEL, WORK, 1)
    found = fit(method, **limits)
    if found.capacity is None:
        assert name in MASKS or limits["memory"] < SLICE
        assert found.left_out
        return
    assert within(costs.of(found.capacity), device, costs)
    if found.capacity == 1.0:
        assert found.bound_by == ()
        return
    above = CAPACITIES[CAPACITIES.index(found.capacity) + 1]
    assert not within(costs.of(above), device, costs)
    assert found.bound_by
    assert set(found.bound_by) <= set(limits)


def test_a_device_without_limits_holds_the_whole_model():
    for name in METHODS:
        found = fit(METHODS[name]())
        assert (found.capacity, found.bound_by, found.limits, found.seconds) == (1.0, (), (), None)


def test_a_mask_shrinks_in_bytes_alone():
    """37 bytes of a round are values of 4 bytes down and up, and the d bits that say which."""
    d = MODEL.layout.num_maskable
    found = fit(METHODS["fiarse"](), bytes=4 * 2 * 500 + -(-d // 8))
    assert found.bound_by == ("bytes",)
    assert found.cost.parameters <= 500 < found.cost.parameters + 0.002 * d
    whole = fit(METHODS["fiarse"]()).cost
    assert found.cost.macs == whole.macs
    assert found.cost.memory > whole.memory


def test_why_a_class_is_left_out():
    assert fit(METHODS["fiarse"](), memory=BESIDE).left_out.startswith(
        "a mask is trained in the shape of the whole model, which takes "
    )
    assert fit(FedAvg(), memory=BESIDE).left_out.startswith("every client holds the whole model, which takes ")
    assert fit(HeteroFL(), memory=BESIDE).left_out.startswith("the smallest submodel takes ")
    assert fit(HeteroFL(), memory=BESIDE).left_out.endswith("of memory, it has 16.8 MB")
    slow = fit(METHODS["fedfibos"](), macs_per_second=1000.0, seconds=2.0).left_out
    assert slow.endswith("s a round, it has 2 s")
    assert fit(FedFIbOSChannels(start="estimate"), memory=BESIDE).left_out.startswith("every client holds the whole")


class Squares(nn.Module):
    """Products whose number no width tells: the inner one is of as many channels as a power of two holds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x.flatten(1))
        padded = nn.functional.pad(h, (0, 2 ** (h.shape[1] - 1).bit_length() - h.shape[1]))
        return self.last(h * (padded.T @ padded).mean())


def test_a_class_whose_seconds_no_later_slice_would_keep_is_left_out():
    """The plan says so, and the run does not end in the first round."""
    model = model_of(Squares(), example=torch.zeros(2, 1, 8, 8))
    device = Device("slow", 1.0, macs_per_second=3.0 * 12 * 500, seconds=1.0)
    slow, free = fits(FedFIbOSChannels(), model, [device, Device("free", 1.0)], WORK)
    assert slow.capacity is None
    assert slow.left_out == (
        "its seconds a round cannot be kept: the operations of this model are no product of its widths"
    )
    assert free.capacity == 1.0


def test_numbers_beyond_those_of_a_float_are_the_largest():
    fast = {"seconds": 1e200, "macs_per_second": 1e200}
    assert dict(fit(HeteroFL(), bytes=9_000, **fast).limits)["macs"] == int(sys.float_info.max)
    often = {"seconds": 1e200, "examples_per_second": 1e200}
    assert dict(fit(HeteroFL(), bytes=9_000, **often).limits)["macs"] == int(sys.float_info.max)
    assert fit(HeteroFL(), macs_per_second=1e-320).seconds == sys.float_info.max
    assert fit(HeteroFL(), examples_per_second=1e-320).seconds == sys.float_info.max


def test_a_model_without_channels_to_cut_is_named():
    model = model_of(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), example=torch.zeros(2, 1, 8, 8))
    (found,) = fits(HeteroFL(), model, [Device("one", 1.0, bytes=1000)], WORK)
    assert found.left_out.startswith(
        "every client holds the whole model, which takes 2.08 kB a round, it has 1 kB, and no smaller one is there: "
        "slicing to capacity 0.999 needs a layer whose channels can be cut"
    )


def test_a_narrow_fedavg_needs_what_it_is():
    found = fit(FedAvg(capacity=0.2), memory=SLICE)
    assert found.capacity == 1.0
    assert found.cost.share < 0.2


def test_both_speeds_say_the_same():
    whole = fit(HeteroFL()).cost.macs
    by_macs = fit(HeteroFL(), macs_per_second=3.0 * 5 * whole, seconds=1.0)
    by_examples = fit(HeteroFL(), examples_per_second=5.0, seconds=1.0)
    assert by_macs.capacity == by_examples.capacity
    assert by_macs.limits == by_examples.limits == (("macs", whole * 5 // 12),)
    assert by_macs.seconds == pytest.approx(by_examples.seconds)
    assert by_macs.seconds == pytest.approx(3 * 12 * by_macs.cost.macs / (15 * whole))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget", [("parameters",), ("macs", "memory")])
def test_later_rounds_keep_the_limits_too(seed, budget):
    """Whatever the scores come to be, a slice takes no more than its device has."""
    method, work = FedFIbOSChannels(), Work(WORK.data, WORK.local, budget, WORK.examples)
    device = Device("one", 1.0, memory=SLICE, bytes=16_000, macs_per_second=1e6, seconds=1.0)
    found = fits(method, MODEL, [device], work)[0]
    assert [name for name, _ in found.limits] == ["bytes", "macs", "memory"]
    scores = torch.rand(MODEL.axes.num_units, generator=torch.Generator().manual_seed(seed)) ** 8
    state = State({"score": torch.cat([scores, torch.ones_like(scores), scores]), "round": torch.tensor(0)})
    client = Client(0, found.capacity, 3, 0, WORK.local, DATA, budget=budget, limits=found.limits)
    free = Client(0, found.capacity, 3, 0, WORK.local, DATA, budget=budget)
    held, unbound = (method.extract(MODEL, state, MODEL.initial_params(), each) for each in (client, free))
    widths = {**MODEL.axes.sizes, **dict(held.widths)}
    assert MODEL.macs.at(widths) <= dict(found.limits)["macs"] == 27_777
    sent = 8 * held.num_held + 4 * held.units.numel()
    assert sent <= dict(found.limits)["bytes"] <= 16_000
    memory = step_memory(MODEL, WORK.local, method.train)
    assert memory.at(widths) / memory.per <= dict(found.limits)["memory"]
    assert set(held.units.tolist()) <= set(unbound.units.tolist())


def test_classes_of_one_capacity_share_the_tighter_limits():
    one, other = Device("one", 0.5, bytes=9_000), Device("other", 0.5, bytes=9_001)
    first, second = fits(HeteroFL(), MODEL, [one, other], WORK)
    assert first.capacity == second.capacity
    assert first.limits == second.limits == (("bytes", 9_000),)


def test_examples_of_a_round():
    assert examples_of(LocalTraining(steps=3, batch_size=4), 100) == 12
    assert examples_of(LocalTraining(epochs=2), 100) == 200
