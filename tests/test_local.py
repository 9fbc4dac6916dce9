"""Local training: batches, a stream of its own, and one step by hand."""

import random

import pytest
import torch
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.local import LocalTrainingError, batch_indices, local_training, seeded
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.params import Params
from fedfibos.submodel import Mask, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client


def batches(local, n, drop_single=False):
    return [len(batch) for batch in batch_indices(local, n, torch.Generator().manual_seed(0), drop_single)]


def test_steps_have_full_batches_and_epochs_end_with_what_is_left():
    assert batches(LocalTraining(steps=4, batch_size=3), 5) == [3, 3, 3, 3]
    assert batches(LocalTraining(steps=2, batch_size=9), 5) == [5, 5]
    assert batches(LocalTraining(epochs=2, batch_size=2), 5) == [2, 2, 1, 2, 2, 1]
    assert batches(LocalTraining(epochs=2, batch_size=2), 5, drop_single=True) == [2, 2, 2, 2]
    order = torch.cat(list(batch_indices(LocalTraining(epochs=1, batch_size=2), 5, torch.Generator(), False)))
    assert sorted(order.tolist()) == [0, 1, 2, 3, 4]


def test_a_block_draws_from_its_own_stream_and_moves_no_other():
    torch.manual_seed(3)
    random.seed(3)
    expected = float(torch.rand(())), random.random()
    torch.manual_seed(3)
    random.seed(3)
    drawn = []
    for _ in range(2):
        with seeded(torch.Generator().manual_seed(1), torch.device("cpu")):
            drawn.append((float(torch.rand(())), random.random()))
    assert drawn[0] == drawn[1]
    assert (float(torch.rand(())), random.random()) == expected


@pytest.mark.parametrize(("held", "delta"), [(None, [0.25, -0.25]), ([True, False], [0.25, 0.0])])
def test_one_step_by_hand(held, delta):
    """Logits 0 and 0 of input 1, label 1: the gradient is softmax − label = (½, −½), times lr ½; Δ = before − after."""
    module = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(module.weight)
    model = model_of(module)
    client = Client(
        0, 1.0, 0, 0, LocalTraining(steps=1, batch_size=1, lr=0.5), TensorData(torch.ones(1, 1), torch.tensor([1]))
    )
    submodel = full(model.layout) if held is None else Mask(torch.tensor(held), 1)
    upload = local_training(model, model.initial_params(), submodel, client)
    assert upload.delta.tolist() == delta
    assert float(upload.loss) == pytest.approx(0.693147, abs=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_slice_as_its_client_sees_it_trains_alike_and_leaves_what_was_sent(scaled):
    """It has no index, and no second copy of the values."""
    images = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    model = model_of(build("lenet", 4, (1, 8, 8), seed=1), example=images)
    held = prefix(model, 0.25)
    seen = model.axes.own_view(model.layout, dict(held.widths))
    sent = Params(held.layout, held.gather(model.initial_params().flat))
    before = sent.flat.clone()
    assert (seen.index, seen.device, seen.num_held, held.num_held) == (None, None, 46_369, 46_369)
    assert torch.equal(seen.gather(sent.flat), sent.flat)
    assert (seen.is_all, held.is_all) == (True, False)
    local = LocalTraining(steps=3, batch_size=4, lr=0.1, momentum=0.9)
    client = Client(0, 0.25, 0, 0, local, TensorData(images, torch.arange(8) % 4))
    constrain = (lambda values: (values * 2.0, torch.full_like(values, 2.0))) if scaled else None
    got = local_training(model, sent, seen, client, constrain=constrain)
    wanted = local_training(model, model.initial_params(), held, client, constrain=constrain)
    assert torch.equal(got.delta, wanted.delta)
    assert got.delta.abs().max() > 0.01
    assert torch.equal(sent.flat, before)
    total, count = torch.zeros(46_369), torch.zeros(46_369)
    seen.add_to(total, got.delta, 0.5)
    seen.count_in(count, 0.5)
    assert torch.equal(total, got.delta * 0.5)
    assert count.unique().tolist() == [0.5]


def test_a_client_without_examples_cannot_train():
    model = model_of(nn.Linear(1, 2))
    empty = Client(
        0, 1.0, 0, 0, LocalTraining(steps=1), TensorData(torch.ones(0, 1), torch.zeros(0, dtype=torch.int64))
    )
    with pytest.raises(LocalTrainingError, match="no training example"):
        local_training(model, model.initial_params(), full(model.layout), empty)
