"""One round of FedBRB (our interpretation) on twelve parameters by hand, its grid, its coverage and its broadcast.

One input x = 1, four hidden units without activation, two classes, no biases; learning rate 1/2, one step, one example.

    W1 = (1/2, 1/2, 1/2, 1/2)    W2 = (3/4, 1/4, 3/4, 1/4)   class 0
                                      (1/4, 3/4, 1/4, 3/4)   class 1

Width 1/2: blocks (0, 1) and (2, 3) of the hidden units. Whichever units of W1 and columns of W2 are joined, the small
network has h = (1, 1) under the scaler, both scores are 1 and with y = 0

    Δ W1 = (−1/4, 1/4)    Δ W2 = (−1/4, −1/4), (1/4, 1/4)

so the trained block of W1 becomes (3/4, 1/4), that of W2 (1, 1/2), (0, 1/2). Broadcast with λ = 1/2: the other block
goes half-way there, W1 to (5/8, 3/8), W2 to (7/8, 3/8), (1/8, 5/8).

``aligned``, round 1: block (2, 3) of both. ``positional``, round 1: block 0 of outputs (W1), block 1 of inputs (W2).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedfibos.aggregate import Sums
from fedfibos.data.images import TensorData
from fedfibos.methods._blocks import (
    block_channels,
    block_numbers,
    blocks_in,
    broadcast_blocks,
    by_role,
    num_blocks,
    positional,
)
from fedfibos.methods._slicing import input_dims
from fedfibos.methods.fedbrb import FedBRB
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.params import Layout, layout_of
from fedfibos.round import federated_round
from fedfibos.submodel import Mask, Slice
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State, Upload

LOCAL = LocalTraining(steps=1, batch_size=1, lr=0.5)


def client(width: float, t: int, number: int = 0) -> Client:
    return Client(number, width, t, 0, LOCAL, TensorData(torch.ones(1, 1), torch.tensor([0])))


def two_layers() -> Model:
    module = nn.Sequential(nn.Linear(1, 4, bias=False), nn.Linear(4, 2, bias=False))
    module[0].weight.data.fill_(1 / 2)
    module[1].weight.data = torch.tensor([[3 / 4, 1 / 4, 3 / 4, 1 / 4], [1 / 4, 3 / 4, 1 / 4, 3 / 4]])
    return model_of(module, example=torch.zeros(2, 1))


TRAINED = [3 / 4, 1 / 4], [1, 1 / 2], [0, 1 / 2]
REACHED = [5 / 8, 3 / 8], [7 / 8, 3 / 8], [1 / 8, 5 / 8]
UNTOUCHED = [1 / 2, 1 / 2], [3 / 4, 1 / 4], [1 / 4, 3 / 4]


@pytest.mark.parametrize(
    ("settings", "others", "first_block"),
    [
        ({"blocks": "aligned", "broadcast": 0.5}, REACHED, [False, False, False]),
        ({"blocks": "positional", "broadcast": 0.5}, REACHED, [True, False, False]),
        ({"blocks": "positional", "broadcast": 0.0}, UNTOUCHED, [True, False, False]),
        ({"blocks": "aligned", "broadcast": 1.0}, TRAINED, [False, False, False]),
    ],
)
def test_one_round(settings, others, first_block):
    model, method = two_layers(), FedBRB(capacity_basis="width", **settings)
    state, params, _ = federated_round(method, model, State(), model.initial_params(), [client(0.5, 1)])
    rows = [(*a, *b) if first else (*b, *a) for a, b, first in zip(TRAINED, others, first_block, strict=True)]
    assert params.flat.tolist() == [x for row in rows for x in row]
    assert state.tensors == {}


def test_positional_and_aligned_blocks_roll():
    """Two axes of 4 and 6 channels in blocks of 2: two and three blocks, so G = 3."""
    assert [positional({"a": 2, "b": 3}, t) for t in (0, 1, 3, 5, 8)] == [
        {"a": 0, "b": 0, "a (input)": 0, "b (input)": 0},
        {"a": 0, "b": 0, "a (input)": 1, "b (input)": 1},
        {"a": 1, "b": 1, "a (input)": 1, "b (input)": 0},
        {"a": 1, "b": 1, "a (input)": 1, "b (input)": 2},
        {"a": 0, "b": 2, "a (input)": 0, "b (input)": 2},
    ]
    model = model_of(build("mlp", 2, (1, 1, 1), hidden=(4, 6)), example=torch.zeros(2, 1, 1, 1))
    first, second = model.axes.sizes
    rolled = [block_numbers(model.axes, input_dims(model), {first: 2, second: 3}, t) for t in range(6)]
    assert [(r[first], r[second]) for r in rolled] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


@given(st.integers(1, 30), st.data())
def test_blocks_cover_an_axis_and_keep_every_channel_in_its_place(size, data):
    width = data.draw(st.integers(1, size))
    blocks = [block_channels(size, width, p).tolist() for p in range(-(-size // width))]
    assert {c for block in blocks for c in block} == set(range(size))
    for block in blocks:
        assert [c % width for c in block] == list(range(width))
        assert max(block) - min(block) == width - 1


MODELS = {
    "mlp": lambda: build("mlp", 3, (1, 4, 4), seed=1, hidden=(6, 8)),
    "cnn-group": lambda: build("cnn", 3, (1, 4, 4), norm="group", seed=1, channels=(8, 16)),
    "resnet8-batch": lambda: build("resnet8", 3, (1, 4, 4), norm="batch", seed=1, channels=(4, 6, 8)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("blocks", ["positional", "aligned"])
@pytest.mark.parametrize("width", [0.5, 0.3])
def test_every_block_is_trained(name, blocks, width):
    """Small clients alone reach every parameter within one period, square tensors and residual blocks included."""
    model = model_of(MODELS[name](), example=torch.zeros(2, 1, 4, 4))
    counts = num_blocks(model.axes, model.axes.widths(width)).values()
    method, ever = FedBRB(capacity_basis="width", blocks=blocks), torch.zeros(model.layout.size)
    period = max(counts) ** (2 if blocks == "positional" else 3)
    params = model.initial_params()
    for t in range(period):
        submodel = method.extract(model, State(), params, client(width, t))
        assert isinstance(submodel, Slice)
        submodel.count_in(ever, 1.0)
    assert bool((ever > 0).all())


def test_a_positional_grid_is_trained_evenly():
    """Where blocks divide an axis, every scalar of a square tensor is trained once in G² rounds."""
    model = model_of(build("mlp", 2, (1, 1, 1), hidden=(8, 8)), example=torch.zeros(2, 1, 1, 1))
    method, times = FedBRB(capacity_basis="width"), torch.zeros(model.layout.size)
    for t in range(16):
        method.extract(model, State(), model.initial_params(), client(0.25, t)).count_in(times, 1.0)
    seen = dict(zip(model.layout.names, model.layout.views(times), strict=True))
    assert torch.equal(seen["features.3.weight"], torch.ones(8, 8))
    assert torch.equal(seen["features.3.bias"], torch.full((8,), 4.0))


@pytest.mark.parametrize("blocks", ["positional", "aligned"])
def test_a_slice_has_no_repeats_and_the_shape_of_its_width(blocks):
    model = model_of(MODELS["resnet8-batch"](), example=torch.zeros(2, 1, 4, 4))
    for t in range(9):
        submodel = FedBRB(capacity_basis="width", blocks=blocks).extract(
            model, State(), model.initial_params(), client(0.5, t)
        )
        assert submodel.index.unique().numel() == submodel.num_held == submodel.layout.size
        assert submodel.layout == model.axes.small_layout(model.layout, model.axes.widths(0.5))


def vector(size: int) -> Layout:
    return layout_of(nn.Linear(1, size, bias=False))


def test_broadcast_weighs_the_blocks_by_their_participants():
    """Six scalars; two clients trained block (0, 1), one trained block (0, 1, 2); λ = 1/2.

    x = (2, 4, 10, 0, 0, 0). Scalar 3: (2 · x₁ + x₀)/3 = 10/3, half of it 5/3. Scalar 4: (2 · x₀ + x₁)/3 = 8/3, half
    4/3. Scalar 5: (2 · x₁ + x₂)/3 = 6, half 3.
    """
    flat = torch.tensor([2.0, 4, 10, 0, 0, 0])
    sources = torch.tensor([0, 1, 0, 1, 0, 1, 0]), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    after = broadcast_blocks(vector(6), flat, flat > 0, [(2.0, sources[0]), (1.0, sources[1])], 0.5)
    assert after.tolist() == pytest.approx([2, 4, 10, 5 / 3, 4 / 3, 3])
    assert flat.tolist() == [2, 4, 10, 0, 0, 0]


def test_broadcast_takes_only_trained_values():
    """The value that stands for scalar 2 was not trained (an absent class's row), so scalar 2 stays."""
    flat, held = torch.tensor([5.0, 7, 1, 1]), torch.tensor([False, True, False, False])
    after = broadcast_blocks(vector(4), flat, held, [(1.0, torch.tensor([0, 1, 0, 1, 0]))], 1.0)
    assert after.tolist() == [5, 7, 1, 7]


def test_a_full_client_leaves_nothing_to_broadcast_to():
    model, params = two_layers(), two_layers().initial_params()
    cohort = [client(0.5, 1), client(1.0, 1, number=1)]
    ends = [
        federated_round(FedBRB(capacity_basis="width", broadcast=rate), model, State(), params, cohort)[1]
        for rate in (0.0, 1.0)
    ]
    assert torch.equal(ends[0].flat, ends[1].flat)


def test_two_widths_in_a_cohort_and_no_trace_in_the_state():
    model = model_of(MODELS["resnet8-batch"](), example=torch.zeros(2, 1, 4, 4))
    images = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    local = LocalTraining(steps=1, batch_size=6)
    cohort = [
        Client(n, width, 2, 0, local, TensorData(images + n, torch.arange(6) % 3))
        for n, width in enumerate((0.5, 0.25, 0.5))
    ]
    changed = {}
    for rate in (0.0, 0.5):
        method, params = FedBRB(capacity_basis="width", broadcast=rate), model.initial_params()
        state, after, report = federated_round(method, model, State(), params, cohort)
        assert state.tensors == {}
        assert report.rejected == {}
        changed[rate] = float((after.flat != params.flat).float().mean())
    assert changed[0.0] < 0.4
    assert changed[0.5] > 0.8  # kernel positions that only see padding never change


def test_input_dimensions_follow_from_the_kind_of_layer():
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.position = nn.Parameter(torch.zeros(3, 4))
            self.conv = nn.ConvTranspose1d(4, 6, 1)
            self.norm = nn.BatchNorm1d(6)
            self.head = nn.Linear(6, 2)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = (self.embed(ids) + self.position).transpose(1, 2)
            return self.head(self.norm(self.conv(x)).mean(2))

    model = model_of(Kinds(), example=torch.zeros(2, 3, dtype=torch.int64))
    roles = input_dims(model)
    assert {name: sorted(dims) for name, dims in roles.items()} == {
        "embed.weight": [0],
        "position": [],
        "conv.weight": [0, 2],
        "conv.bias": [],
        "norm.weight": [],
        "norm.bias": [],
        "head.weight": [1],
        "head.bias": [],
    }
    axes = by_role(model.axes, roles)
    assert [part.axis for dim in axes.dims["conv.weight"] for part in dim] == ["embed (input)", "conv", None]


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"broadcast must be in \[0, 1\], got 1.5"):
        FedBRB(broadcast=1.5)
    model, method = two_layers(), FedBRB(capacity_basis="width")
    sent = method.extract(model, State(), model.initial_params(), client(0.5, 0))
    plain = Slice(sent.index, sent.layout, sent.widths)
    with pytest.raises(TypeError, match="FedBRB's server needs the blocks that it sent, got a plain slice"):
        method.update(State(), client(0.5, 0), Upload(plain, torch.zeros(6), 0.0, 1))


def test_the_cohorts_blocks_are_known_until_the_broadcast():
    """Weights of those that trained the same block add up; a client of the whole model has none."""
    model, method = two_layers(), FedBRB(capacity_basis="width")
    params, sums = model.initial_params(), Sums(model.layout)
    half = method.extract(model, State(), params, client(0.5, 0))
    state = method.init(params)
    for submodel, weight in ((half, 1.0), (Mask(None, 12), 5.0), (half, 2.0)):
        upload = Upload(submodel, torch.zeros(submodel.num_held), 0.0, 1)
        state = method.update(state, replace(client(0.5, 0), weight=weight), upload)
        sums.add(upload, weight)
    ((total, sources),) = blocks_in(state)
    assert total == 3.0
    assert sources is half.sources
    assert not method.aggregate(state, params, sums)[0].tensors
