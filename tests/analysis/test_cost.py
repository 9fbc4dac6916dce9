"""Costs agree with hand counts and with torch's profiler."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from fedfibos.analysis.cost import as_sent, cost, forward_macs
from fedfibos.backend.memory import peak_memory
from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.methods.fiarse import FIARSE
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.params import Params
from fedfibos.round import submodel_for
from fedfibos.training import LocalTraining
from fedfibos.types import Client

SHAPE = (3, 16, 16)


def images(n: int = 4) -> TensorData:
    return TensorData(torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(0)), torch.arange(n))


def test_hand_count_of_a_linear_model():
    """4 -> 8 -> 2 with biases: 32 + 16 multiplications; 58 parameters."""
    model = model_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), example=torch.zeros(2, 4))
    data = TensorData(torch.randn(3, 4), torch.tensor([0, 1, 0]))
    result = cost(METHODS["fedavg"](), model, 1.0, data, LocalTraining(batch_size=3))
    assert result.macs == 48
    assert result.parameters == 58
    assert (result.bytes_down, result.bytes_up) == (4 * 58, 4 * 58)


def test_control_variates_come_down_with_the_model():
    """Of 58 parameters, 58 corrections more; budgets in bytes count them in each channel."""
    model = model_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), example=torch.zeros(2, 4))
    data = TensorData(torch.randn(3, 4), torch.tensor([0, 1, 0]))
    plain = LocalTraining(batch_size=3, momentum=0.0, clip_norm=0.0)
    scaffold = replace(plain, scaffold=True)
    result = cost(METHODS["fedavg"](), model, 1.0, data, scaffold)
    assert (result.bytes_down, result.bytes_up) == (8 * 58, 4 * 58)
    method, params = METHODS["heterofl"](), model.initial_params()
    held = []
    for local in (plain, scaffold):  # 7 channels hold 51 parameters, 6 hold 44 and 5 hold 37, of 8 bytes or of 12
        client = Client(0, 0.99, 0, 0, local, data, limits=(("bytes", 500.0),))
        held.append(submodel_for(method, model, method.init(params), params, client).num_held)
    assert held == [51, 37]


def test_memory_by_hand():
    """Memory counts once however many views it has, from its making until nobody holds it."""

    def work():
        one = torch.zeros(100)
        two = one + 1  # 800 bytes
        one.view(10, 10).mul_(two.view(10, 10))
        del one
        return (two * 2).sum()  # as many again, in place of the first; and the sum's 4

    assert peak_memory(work) == 804
    assert peak_memory(lambda: None) == 0
    before = torch.zeros(50)
    assert peak_memory(lambda: before.add_(1)) == 200


def test_memory_of_optimisers_and_of_what_methods_add():
    """A moment more of every parameter for momentum; two, and a step number a tensor, for AdamW.

    For a mask its indicator, and with FedFIbOS a sum of squares.
    """
    model = model_of(nn.Sequential(nn.Linear(400, 80), nn.ReLU(), nn.Linear(80, 2)))
    data = TensorData(torch.randn(3, 400), torch.tensor([0, 1, 0]))
    size = 4 * model.layout.size

    def memory(method="fedavg", capacity=1.0, **local):
        return cost(METHODS[method](), model, capacity, data, LocalTraining(batch_size=3, **local)).tensors

    plain = memory()
    assert 2 * size < plain < 2.2 * size  # values, gradients; few activations; not what was received
    assert memory(momentum=0.9) == plain + size
    assert memory(optimizer="adamw") == pytest.approx(plain + 2 * size + 4 * 4, abs=100)
    assert memory("fedfibos", 0.5) >= plain + 2 * size
    assert memory("fiarse", 0.5) >= plain + 2 * size
    assert memory("fedfibos", 0.5) == pytest.approx(memory("fedfibos", 0.125), rel=1e-3)


def test_resnet18_has_the_published_multiply_accumulates():
    """0.56 billion for one 3x32x32 image: stem, 16 convolutions, 3 projections, classifier."""
    model = model_of(build("resnet18", 10, (3, 32, 32), norm="batch"))
    stem = 1024 * 27 * 64
    first = 4 * 1024 * 9 * 64 * 64
    later = sum(n * (9 * c * c // 2 + 3 * 9 * c * c + c * c // 2) for n, c in ((256, 128), (64, 256), (16, 512)))
    params = model.initial_params()
    submodel = METHODS["fedavg"]().extract(model, METHODS["fedavg"]().init(params), params, _client(1.0))
    data = TensorData(torch.zeros(1, 3, 32, 32), torch.tensor([0]))
    assert forward_macs(model, params, submodel, data) == stem + first + later + 5120


def _client(capacity: float) -> Client:
    return Client(0, capacity, 0, 0, LocalTraining())


@pytest.mark.parametrize("capacity", [1.0, 0.25])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_macs_agree_with_the_profiler(capacity, norm):
    """Its FLOPs / 2 within 2 %."""
    model = model_of(build("resnet8", 10, SHAPE, norm=norm), example=torch.zeros(2, *SHAPE))
    params, method, data = model.initial_params(), METHODS["heterofl"](), images()
    submodel = method.extract(model, method.init(params), params, _client(capacity))
    module = model.workspace(submodel).load(submodel.gather(params.flat)).train()
    inputs = data.batch(torch.arange(4))
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as seen:
        module(inputs)
    flops = sum(event.flops for event in seen.key_averages())
    assert flops / 2 / 4 == pytest.approx(forward_macs(model, params, submodel, data), rel=0.02)


@pytest.mark.parametrize("name", ["fedavg", "heterofl", "fiarse", "fedfibos"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_memory_agrees_with_the_profiler(name, norm):
    """Its peak of allocations within 15 %: it sees the buffers within operations too, and not what was there before."""
    model = model_of(build("resnet8", 10, SHAPE, norm=norm), example=torch.zeros(2, *SHAPE))
    params, method, data = model.initial_params(), METHODS[name](), images()
    local = LocalTraining(batch_size=4, steps=2)
    client = Client(0, 0.5, 0, 0, local, data)
    submodel = method.extract(model, method.init(params), params, client)
    there = model.workspace(submodel).values.nbytes
    submodel, sent = as_sent(submodel, params)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        method.train(model, sent, submodel, client)
    total = peak = 0
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    assert peak + there == pytest.approx(cost(method, model, 0.5, data, local).tensors, rel=0.15)


def test_a_device_s_slice_is_not_copied_to_be_measured():
    """It has been sent its own parameters."""
    model = model_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), example=torch.zeros(2, 4))
    seen = model.axes.own_view(model.layout, dict.fromkeys(model.axes.sizes, 3))
    params = Params(seen.layout, torch.ones(seen.layout.size))
    submodel, sent = as_sent(seen, params)
    assert submodel is seen
    assert sent.flat.data_ptr() == params.flat.data_ptr()


def test_bfloat16_halves_what_most_layers_keep():
    model = model_of(build("resnet8", 10, SHAPE, norm="group"))
    exact, half = (
        cost(METHODS["fedavg"](), model, 1.0, images(), LocalTraining(batch_size=4, precision=precision)).tensors
        for precision in ("float32", "bfloat16")
    )
    assert half < 0.9 * exact


def test_counting_moves_no_random_stream_but_its_own():
    """Dropout draws in the step that is counted."""
    model = model_of(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(768, 4)))
    before = torch.get_rng_state()
    cost(METHODS["fedavg"](), model, 1.0, images(), LocalTraining(batch_size=4))
    assert torch.equal(torch.get_rng_state(), before)


def test_masks_save_bytes_and_slices_save_everything():
    model = model_of(build("resnet8", 10, SHAPE, norm="batch"), example=torch.zeros(2, *SHAPE))
    whole = cost(METHODS["fedavg"](), model, 1.0, images(), LocalTraining(batch_size=4))
    mask = cost(METHODS["fedfibos"](), model, 0.25, images(), LocalTraining(batch_size=4))
    slice_ = cost(METHODS["heterofl"](), model, 0.25, images(), LocalTraining(batch_size=4))
    assert mask.macs == whole.macs
    assert mask.tensors > whole.tensors
    assert mask.bytes_down < 0.35 * whole.bytes_down
    assert slice_.macs < 0.4 * whole.macs
    assert slice_.tensors < 0.7 * whole.tensors
    assert whole.memory < mask.memory  # of a slice of so small a model it is mostly what builds the module
    assert slice_.share <= 0.25


def test_bits_of_what_a_client_counts_are_sent():
    """FIARSE whose holders are those that moved, and one that says nothing: a bit for each held parameter more."""
    model = model_of(nn.Sequential(nn.Flatten(), nn.Linear(768, 10)), example=torch.zeros(2, *SHAPE))
    costs = [
        cost(FIARSE(holders=holders), model, 0.25, images(), LocalTraining(steps=1, batch_size=4))
        for holders in ("mask", "moved")
    ]
    held = costs[0].parameters
    assert costs[1].bytes_up - costs[0].bytes_up == math.ceil(held / 8)
