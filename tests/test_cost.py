"""Costs agree with hand counts and with torch's profiler."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from fedfibos.cost import cost, forward_macs, training_memory
from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.training import LocalTraining
from fedfibos.types import Client

SHAPE = (3, 16, 16)


def images(n: int = 4) -> TensorData:
    return TensorData(torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(0)), torch.arange(n))


def test_hand_count_of_a_linear_model():
    """4 -> 8 -> 2 with biases: 32 + 16 multiplications; 58 parameters.

    Training memory on a batch of 3: values, their start and gradients 3·4·58 bytes; kept for the backward pass: the
    input (3·4 floats), the activation (3·8, its own ReLU's result), and the loss's log-probabilities (3·2), labels
    (3 int64) and total weight (1 float).
    """
    model = model_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), example=torch.zeros(2, 4))
    data = TensorData(torch.randn(3, 4), torch.tensor([0, 1, 0]))
    result = cost(METHODS["fedavg"](), model, 1.0, data, LocalTraining(batch_size=3))
    assert result.macs == 48
    assert result.parameters == 58
    activations = 4 * (12 + 24 + 6) + 8 * 3 + 4
    assert result.memory == 3 * 4 * 58 + activations
    momentum, adamw = (LocalTraining(batch_size=3, **more) for more in ({"momentum": 0.9}, {"optimizer": "adamw"}))
    assert cost(METHODS["fedavg"](), model, 1.0, data, momentum).memory == 4 * 4 * 58 + activations
    assert cost(METHODS["fedavg"](), model, 1.0, data, adamw).memory == 5 * 4 * 58 + activations
    assert (result.bytes_down, result.bytes_up) == (4 * 58, 4 * 58)


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
def test_macs_and_memory_agree_with_the_profiler(capacity, norm):
    """The profiler's FLOPs / 2 within 2 %, its peak of allocations (gradients, activations) within 25 % and not above.

    Ours counts all gradients beside all activations; in truth the last activations are freed before the first
    gradients exist, and the backward pass needs buffers of its own.
    """
    model = model_of(build("resnet8", 10, SHAPE, norm=norm), example=torch.zeros(2, *SHAPE))
    params, method, data = model.initial_params(), METHODS["heterofl"](), images()
    submodel = method.extract(model, method.init(params), params, _client(capacity))
    space = model.workspace(submodel)
    module = space.load(submodel.gather(params.flat)).train()
    inputs = data.batch(torch.arange(4))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_flops=True) as seen:
        loss = nn.functional.cross_entropy(module(inputs), data.labels)
    flops = sum(event.flops for event in seen.key_averages())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        loss = nn.functional.cross_entropy(module(inputs), data.labels)
        gradients = torch.autograd.grad(loss, space.parameters)
    assert len(gradients) == len(space.parameters)
    total = peak = 0
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    ours = training_memory(model, params, submodel, data, torch.arange(4), LocalTraining()) - 8 * space.values.numel()
    assert flops / 2 / 4 == pytest.approx(forward_macs(model, params, submodel, data), rel=0.02)
    assert peak == pytest.approx(ours, rel=0.25)


def test_bfloat16_halves_what_most_layers_keep():
    model = model_of(build("resnet8", 10, SHAPE, norm="group"))
    exact, half = (
        cost(METHODS["fedavg"](), model, 1.0, images(), LocalTraining(batch_size=4, precision=precision)).memory
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
    assert mask.memory == whole.memory
    assert mask.bytes_down < 0.35 * whole.bytes_down
    assert slice_.macs < 0.4 * whole.macs
    assert slice_.memory < 0.7 * whole.memory
    assert slice_.share <= 0.25
