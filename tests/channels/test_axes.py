"""Named axes: index sets worked out by hand, properties over the zoo, sliced against masked, refusals."""

import copy
import pickle
import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfibos.analysis.cautions import cautions
from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.check import check_axes
from fedfibos.channels.costs import parameter_cost, width_within
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.resize import resize_module
from fedfibos.methods._slicing import prefix
from fedfibos.methods.heterofl import HeteroFL
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.params import layout_of, params_of
from fedfibos.submodel import Slice
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from zoo import NUM_CLASSES, VOCABULARY, ZOO, Logits, LSTMClassifier, images, lstm_axes, tokens, zoo


def windows(axes: Axes, ratio: float, start: int = 0) -> dict[str, Tensor]:
    """The first ⌈ratio · C⌉ channels of every axis, counted from ``start``, wrapping around."""
    return {axis: (torch.arange(width) + start) % axes.sizes[axis] for axis, width in axes.widths(ratio).items()}


def index(module: nn.Module, example: Tensor, **channels: list[int]) -> list[int]:
    axes = derive_axes(module, example)
    kept = {axis: torch.tensor(values) for axis, values in channels.items()}
    return axes.index(layout_of(module), kept)[0].tolist()


# Index sets by hand


def test_two_linear_layers():
    """Layout: 0.weight (3, 2) at 0..5, 0.bias at 6..8, 2.weight (2, 3) at 9..14, 2.bias at 15, 16.

    Hidden channels 2 and 0, in that order: rows 2 and 0 of the first layer, columns 2 and 0 of the second.
    """
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    axes = derive_axes(module, torch.zeros(1, 2))
    assert axes.sizes == {"0": 3}
    kept, small = axes.index(layout_of(module), {"0": torch.tensor([2, 0])})
    assert kept.tolist() == [4, 5, 0, 1, 8, 6, 11, 9, 14, 12, 15, 16]
    assert small.shapes == ((2, 2), (2,), (2, 2), (2,))
    assert small.names == layout_of(module).names


def test_flatten_before_a_linear_layer():
    """Channel 1 of 2, on two positions, is columns 2 and 3 of the linear layer.

    Layout: 0.weight (2, 1, 1, 1) at 0, 1; 0.bias at 2, 3; 2.weight (2, 4) at 4..11; 2.bias at 12, 13.
    """
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(4, 2))
    assert index(module, torch.zeros(1, 1, 1, 2), **{"0": [1]}) == [1, 3, 6, 7, 10, 11, 12, 13]


def test_kernels_and_normalisation_come_with_their_channel():
    """Layout: 0.weight (2, 1, 1, 2) at 0..3, 0.bias at 4, 5, 3.weight (1, 2) at 6, 7, 3.bias at 8, then the norm's.

    The norm's weight is at 9, 10 and its bias at 11, 12, behind the maskable tensors.
    """
    module = nn.Sequential(nn.Conv2d(1, 2, (1, 2)), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 1))
    assert index(module, torch.zeros(2, 1, 1, 2), **{"0": [1]}) == [2, 3, 5, 7, 8, 10, 12]


def test_attention_heads_keep_the_same_positions_within_each_head():
    """4 positions in 2 heads of 2: channel 1 is positions 1 and 3, in each of query, key and value."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(3, 4, bias=False)
            self.attention = nn.MultiheadAttention(4, 2, bias=False, batch_first=True)
            self.classifier = nn.Linear(4, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            x = self.embed(x)
            return self.classifier(self.attention(x, x, x)[0].mean(dim=1))

    module = Attention()
    axes = derive_axes(module, torch.randn(2, 3, 3))
    assert axes.sizes == {"embed": 2}
    layout = layout_of(module)
    held = torch.zeros(layout.size, dtype=torch.bool)
    held[axes.index(layout, {"embed": torch.tensor([1])})[0]] = True
    tensors = dict(zip(layout.names, layout.views(held), strict=True))
    stream = torch.tensor([False, True, False, True])
    assert torch.equal(tensors["embed.weight"], stream[:, None].expand(4, 3))
    assert torch.equal(tensors["attention.in_proj_weight"], torch.outer(stream.repeat(3), stream))
    assert torch.equal(tensors["attention.out_proj.weight"], torch.outer(stream, stream))
    assert torch.equal(tensors["classifier.weight"], stream.expand(2, 4))


def test_units_keep_whole_heads_of_an_attention_written_by_hand():
    """RoBERTa views 12 channels as 3 heads of 4: a slice keeps whole heads, with and without being told of them."""
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=10,
        num_labels=NUM_CLASSES,
        max_position_embeddings=12,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    module = Logits(RobertaForSequenceClassification(config))
    query = "model.roberta.encoder.layer.0.attention.self.query"
    axes = derive_axes(module, tokens(), units={query: 4})
    assert axes == derive_axes(module, tokens())
    assert axes.sizes[query] == 3
    assert axes.dims[f"{query}.weight"][0] == (Part(query, after=4),)
    assert axes.dims[f"{query}.weight"][0] == axes.dims[query.replace("query", "value") + ".weight"][0]
    small = resize_module(module, axes, axes.widths(0.5))
    assert small.get_submodule(query).out_features == 8
    assert small(tokens()).shape == (6, NUM_CLASSES)


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ({"frist": 2}, "units: 'frist' is not a layer that produces channels; did you mean 'first'?"),
        ({"first": 5}, "units: 12 channels of 'first' don't divide into units of 5"),
    ],
)
def test_bad_units(units, message):
    example = zoo("shared")
    with pytest.raises(ValueError) as error:  # noqa: PT011  the whole message is compared
        derive_axes(example.module, example.example_inputs, units=units)
    assert str(error.value) == message


def test_rows_of_the_classifier_belong_to_one_class_each():
    assert zoo("resnet8_batch").axes().classes == {"classifier.weight": 0, "classifier.bias": 0}
    assert zoo("transformer").axes().classes == {"classifier.weight": 0, "classifier.bias": 0}


def test_concatenation_has_one_axis_a_branch():
    axes = zoo("concat").axes()
    assert axes.dims["norm.weight"] == ((Part("left"), Part("right")),)
    assert axes.dims["hidden.weight"] == ((Part("hidden"),), (Part("left", after=4), Part("right", after=4)))
    kept = axes.positions(axes.dims["norm.weight"][0], {"left": torch.tensor([5]), "right": torch.tensor([9, 0])})
    assert kept.tolist() == [5, 15, 6]


def test_grouped_convolutions_lose_whole_groups():
    """12 channels, each turned into 2, then 4 groups of 6 into 4: four blocks of 3, 6 and 4 channels."""
    example = zoo("depthwise")
    axes = example.axes()
    assert axes.sizes == {"stem": 8, "pointwise": 4}
    assert axes.dims["depthwise.weight"][0] == (Part("stem"),)
    assert axes.dims["pointwise.weight"][0] == (Part("pointwise", after=3),)
    assert axes.dims["multiplied.weight"][:2] == ((Part("pointwise", after=6),), (Part(None, after=1),))
    assert axes.dims["grouped.weight"][:2] == ((Part("pointwise", after=4),), (Part(None, after=6),))
    small = resize_module(example.module, axes, {"stem": 3, "pointwise": 1})
    assert [small.depthwise.groups, small.multiplied.groups, small.grouped.groups] == [3, 3, 1]


def test_residual_sums_and_shared_layers_tie_channels():
    assert zoo("shared").axes().dims["shared.weight"] == ((Part("first"),), (Part("first"),))
    axes = zoo("resnet8_batch").axes()
    assert axes.dims["conv1.weight"][0] == axes.dims["blocks.0.conv2.weight"][0] == (Part("conv1"),)
    assert axes.dims["blocks.1.conv2.weight"][0] == axes.dims["blocks.1.shortcut.0.weight"][0]


def test_tied_tensors_stay_tied():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 4)
            self.classifier = nn.Linear(4, 9, bias=False)
            self.classifier.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.classifier(self.embed(ids).mean(dim=1))

    module = Tied()
    axes = derive_axes(module, tokens(length=3) % 9)
    assert axes.dims == {"embed.weight": ((Part(None, after=9),), (Part("embed"),))}
    small = resize_module(module, axes, {"embed": 3})
    assert small.classifier.weight is small.embed.weight
    assert tuple(small.embed.weight.shape) == (9, 3)


# Properties over the zoo


@pytest.fixture(scope="module", params=[name for name in ZOO])
def case(request):
    example = zoo(request.param)
    return example, example.axes(), layout_of(example.module)


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_index_is_a_set_of_coordinates_and_gather_inverts_scatter(case, data):
    _, axes, layout = case
    channels = {}
    for axis, size in axes.sizes.items():
        order = data.draw(st.permutations(range(size)), label=axis)
        channels[axis] = torch.tensor(order[: data.draw(st.integers(1, size))])
    submodel = axes.slice(layout, channels)
    kept = submodel.index
    assert kept.numel() == submodel.layout.size == kept.unique().numel()
    assert 0 <= int(kept.min()) <= int(kept.max()) < layout.size
    local = torch.randn(kept.numel(), generator=torch.Generator().manual_seed(0))
    total = torch.zeros(layout.size)
    submodel.add_to(total, local, 1.0)
    assert torch.equal(submodel.gather(total), local)
    assert int((total != 0).sum()) == kept.numel()
    num_maskable = submodel.layout.num_maskable
    assert int((kept < layout.num_maskable).sum()) == num_maskable
    assert bool((kept[:num_maskable] < layout.num_maskable).all())


def test_prefixes_are_nested_and_the_whole_is_everything(case):
    _, axes, layout = case
    sets = [set(axes.index(layout, windows(axes, ratio))[0].tolist()) for ratio in (0.1, 0.25, 0.5, 1.0)]
    assert sets[0] <= sets[1] <= sets[2] <= sets[3]
    assert sets[3] == set(range(layout.size))
    assert axes.index(layout, {})[0].tolist() == list(range(layout.size))


@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.75])
def test_the_small_module_runs_forward_and_backward(case, ratio):
    example, axes, layout = case
    small = resize_module(example.module, axes, axes.widths(ratio))
    assert layout_of(small) == axes.small_layout(layout, axes.widths(ratio))
    scores = small(example.example_inputs)
    assert scores.shape == (6, NUM_CLASSES)
    scores.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in small.parameters())


def test_neither_derivation_nor_resizing_changes_the_module(case):
    example, axes, _ = case
    module = copy.deepcopy(example.module).train()
    before = copy.deepcopy(module.state_dict())
    if example.table is None:
        assert derive_axes(module, example.example_inputs) == axes
    resize_module(module, axes, axes.widths(0.5))
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_inputs_and_class_scores_are_never_sliced(case):
    example, axes, layout = case
    shapes = dict(zip(layout.names, axes.small_layout(layout, axes.widths(0.01)).shapes, strict=True))
    first, last = layout.names[0], next(name for name in layout.names if "classifier" in name and "weight" in name)
    full_first = dict(zip(layout.names, layout.shapes, strict=True))[first]
    assert shapes[last][0] == NUM_CLASSES
    if first != "position":  # an embedding keeps its rows, other first layers their columns
        kept = 0 if example.name == "lstm" or first.startswith("embed.") else 1
        assert shapes[first][kept] == full_first[kept]


# Sliced against masked


def sliced_and_masked(name: str, start: int, training: bool) -> tuple[Tensor, Tensor]:
    """Scores of the small model, and of the full one with zeros off the slice."""
    example = zoo(name)
    axes, layout = example.axes(), layout_of(example.module)
    generator = torch.Generator().manual_seed(3)
    module = copy.deepcopy(example.module).train(training)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator))
    submodel = axes.slice(layout, windows(axes, 0.5, start))
    small = resize_module(module, axes, dict(submodel.widths))
    channels = windows(axes, 0.5, start)
    flat = params_of(module, layout).flat
    masked = torch.zeros(layout.size)
    masked[submodel.index] = submodel.gather(flat)
    buffers = dict(module.named_buffers())
    with torch.no_grad():
        full_named, small_named = dict(module.named_parameters()), dict(small.named_parameters())
        for tensor_name, value in zip(layout.names, layout.views(masked), strict=True):
            full_named[tensor_name].copy_(value)
        for tensor_name, value in zip(layout.names, submodel.layout.views(submodel.gather(flat)), strict=True):
            small_named[tensor_name].copy_(value)
        for buffer_name, buffer in small.named_buffers():
            values = buffers[buffer_name]
            for i, dim in enumerate(axes.dims[buffer_name]):
                values = values.index_select(i, axes.positions(dim, channels))
            buffer.copy_(values)
    return small(example.example_inputs), module(example.example_inputs)


EXACT = [
    "mlp",
    "lenet",
    "cnn_none",
    "cnn_batch",
    "cnn_group",
    "resnet8_batch",
    "resnet8_group",
    "depthwise",
    "concat",
    "shared",
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("name", [*EXACT, "lstm", "third_party_resnet"])
def test_sliced_equals_masked(name, start, training):
    """Per-channel norms, and GroupNorm whose groups stay whole: dropping channels and zeroing them is the same."""
    sliced, masked = sliced_and_masked(name, start, training)
    assert float(sliced.detach().abs().max()) > 0.01
    assert torch.allclose(sliced, masked, rtol=1e-4, atol=1e-4 * float(masked.detach().abs().max()))


def test_sliced_differs_from_masked_under_layer_norm_and_attention():
    """LayerNorm averages over the channels that are left, and attention scales by the size of a head."""
    sliced, masked = sliced_and_masked("transformer", 0, training=False)
    assert float((sliced - masked).detach().abs().max()) > 0.1


def test_sliced_differs_from_masked_under_group_norm_of_few_groups():
    """Two groups of 8 channels stay two groups, of 4: each normalises over other channels than in the full model."""
    module = nn.Sequential(nn.Conv2d(1, 16, 3), nn.GroupNorm(2, 16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 3))
    axes = derive_axes(module, images())
    assert axes.sizes == {"0": 8}
    assert axes.dims["1.weight"] == ((Part("0", before=2),),)
    small = resize_module(module, axes, {"0": 4})
    assert (small[1].num_groups, small[1].num_channels) == (2, 8)
    layout, channels = layout_of(module), {"0": torch.arange(4)}
    submodel = axes.slice(layout, channels)
    flat = params_of(module, layout).flat
    masked = copy.deepcopy(module)
    zeroed = torch.zeros(layout.size).index_put((submodel.index,), submodel.gather(flat))
    with torch.no_grad():
        for name, value in zip(layout.names, layout.views(zeroed), strict=True):
            masked.get_parameter(name).copy_(value)
        for name, value in zip(layout.names, submodel.layout.views(submodel.gather(flat)), strict=True):
            small.get_parameter(name).copy_(value)
    assert float((small(images()) - masked(images())).detach().abs().max()) > 0.05


@pytest.mark.parametrize("groups", [8, 4, 2, 1])
def test_group_norm_keeps_the_size_of_many_groups_and_the_number_of_few(groups):
    module = nn.Sequential(nn.Conv2d(1, 16, 3), nn.GroupNorm(groups, 16, affine=False), nn.Flatten(), nn.Linear(576, 3))
    axes = derive_axes(module, images())
    expected = {8: (8, Part("0", after=2)), 4: (4, Part("0", after=4)), 2: (8, Part("0", 2)), 1: (16, Part("0"))}
    size, part = expected[groups]
    assert axes.sizes == {"0": size}
    assert axes.features == {"1": (part,)}
    small = resize_module(module, axes, axes.widths(0.5))
    assert (small[1].num_groups, small[1].num_channels) == ({8: 4, 4: 2, 2: 2, 1: 1}[groups], 8)
    assert small(images()).shape == (6, 3)


# Widths and budgets


@pytest.fixture(scope="module")
def resnet18():
    module = build("resnet18", 10, (3, 32, 32), norm="batch")
    return model_of(module, example=torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize(
    ("num_classes", "ratio", "expected"),
    [
        (10, 1.0, 11_173_962),
        (10, 0.5, 2_797_610),
        (10, 0.25, 701_466),
        (10, 0.125, 176_402),
        (10, 0.0625, 44_622),
        (100, 1.0, 11_220_132),
        (100, 0.5, 2_820_740),
        (100, 0.25, 713_076),
        (100, 0.125, 182_252),
        (100, 0.0625, 47_592),
    ],
)
def test_resnet18_sizes_by_width(resnet18, num_classes, ratio, expected):
    """HeteroFL's widths: exact parameter counts, worked out outside this project."""
    axes = resnet18.axes
    layout = layout_of(build("resnet18", num_classes, (3, 32, 32), norm="batch"))
    head = Axes(axes.sizes, {**axes.dims, "classifier.bias": ((Part(None, after=num_classes),),)})
    head.dims["classifier.weight"] = ((Part(None, after=num_classes),), axes.dims["classifier.weight"][1])
    assert head.small_layout(layout, head.widths(ratio)).size == expected


def test_resnet18_index_sets_take_under_50_milliseconds(resnet18):
    seconds = []
    for start in range(5):
        channels = windows(resnet18.axes, 0.7, start)
        begin = time.thread_time()  # of this thread alone: the machine may be busy
        submodel = resnet18.axes.slice(resnet18.layout, channels)
        seconds.append(time.thread_time() - begin)
    assert submodel.num_held > 5_000_000
    assert min(seconds) < 0.05


@pytest.mark.parametrize(("capacity", "expected"), [(0.5, 0.705), (0.25, 0.498), (0.125, 0.352), (0.0625, 0.248)])
def test_width_for_a_parameter_budget_of_resnet18(resnet18, capacity, expected):
    """About the square root of the capacity; the share comes within 2 % of the budget and never above."""
    width = width_within(resnet18.axes, {"parameters": resnet18.parameters}, capacity)
    assert width == pytest.approx(expected, abs=5e-4)
    small = resnet18.axes.small_layout(resnet18.layout, resnet18.axes.widths(width))
    assert 0.98 * capacity < small.num_maskable / resnet18.layout.num_maskable <= capacity


@given(capacity=st.floats(0.2, 1.0))
@settings(max_examples=40, deadline=None)
def test_width_within_is_the_largest_that_fits(capacity):
    module = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
    layout = layout_of(module)
    axes = axes_table(
        module,
        {"a": 7, "b": 5},
        {"0.weight": ("a", None), "0.bias": ("a",), "2.weight": ("b", "a"), "2.bias": ("b",), "4.weight": (None, "b")},
    )

    def share(width: float) -> float:
        return axes.small_layout(layout, axes.widths(width)).num_maskable / layout.num_maskable

    width = width_within(axes, {"parameters": parameter_cost(axes, layout)}, capacity)
    assert share(width) <= capacity + 1 / layout.num_maskable  # the budget is a ceiling
    wider = [k / 1000 for k in range(1, 1001) if k / 1000 > width + 1e-9]
    assert all(share(w) > capacity for w in wider)


def test_width_within_refuses_less_than_one_channel_an_axis(resnet18):
    message = r"capacity 1e-06 allows 11 of 11164362 parameters, the narrowest slice of the model has \d+"
    with pytest.raises(ValueError, match=message):
        width_within(resnet18.axes, {"parameters": resnet18.parameters}, 1e-6)


def test_prefix_slice_is_the_first_channels_of_every_axis(resnet18):
    submodel = prefix(resnet18, 0.25)
    assert isinstance(submodel, Slice)
    assert dict(submodel.widths)["conv1"] == 32
    assert submodel.index[: 32 * 27].tolist() == list(range(32 * 27))
    with pytest.raises(ValueError, match="needs an example batch or a table of axes"):
        prefix(model_of(nn.Linear(2, 2)), 0.5)


def test_widths_round_up():
    axes = Axes({"a": 10, "b": 3}, {})
    assert axes.widths(0.3) == {"a": 3, "b": 1}
    assert axes.widths(0.01) == {"a": 1, "b": 1}
    for ratio in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"width must be in \(0, 1\]"):
            axes.widths(ratio)


# What is refused


def test_the_gates_of_an_lstm_are_derived_as_a_table_by_hand_says():
    module = LSTMClassifier()
    by_hand, derived = lstm_axes(module), derive_axes(module, tokens())
    check_axes(module, by_hand, tokens())
    assert derived.sizes == {"embed": 8, "lstm": 12}
    for ours, theirs in (({"embed": [1, 6], "lstm": [11, 0, 4]}, {"embed": [1, 6], "hidden": [11, 0, 4]}),):
        kept = [{a: torch.tensor(c) for a, c in channels.items()} for channels in (ours, theirs)]
        index = [axes.index(layout_of(module), own)[0] for axes, own in zip((derived, by_hand), kept, strict=True)]
        assert torch.equal(*index)


def test_a_wrong_table_is_caught_by_permuting_channels():
    """Forgetting the recurrent columns, or the bias, is no axis."""
    module = LSTMClassifier()
    good = lstm_axes(module)
    whole = (Part(None, after=12),)
    bad = Axes(good.sizes, {**good.dims, "lstm.weight_hh_l0": (good.dims["lstm.weight_hh_l0"][0], whole)})
    with pytest.raises(ValueError, match="'hidden' is not an axis: permuting its channels changes the logits"):
        check_axes(module, bad, tokens())


def test_a_table_of_the_users_is_checked_where_there_is_an_example():
    """The gates of an LSTM lie one after another: not four rows a channel."""
    module = LSTMClassifier()
    good = lstm_axes(module)
    gates = (Part("hidden", after=4),)
    bad = Axes(good.sizes, {**good.dims, "lstm.bias_ih_l0": (gates,)})
    with pytest.raises(ValueError, match="'hidden' is not an axis: permuting its channels changes the logits"):
        _ = model_of(module, example=tokens(2), axes=bad).axes
    assert model_of(module, example=tokens(2), axes=good).axes is good
    assert model_of(module, axes=bad).axes is bad  # nothing to check it on


class Rooted(nn.Module):
    """Takes the root of a parameter, which has to be positive."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, NUM_CLASSES)
        self.scale = nn.Parameter(torch.ones(1, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu() * self.scale.sqrt())


class Largest(nn.Module):
    """Goes on with the four largest channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(torch.where(x >= x.topk(4).values[:, -1:], x, 0.0))


def hidden_axes(module: nn.Module, **other: Any) -> Axes:
    dims = {"first.weight": ("h", None), "first.bias": ("h",), "last.weight": (None, "h")} | other
    return axes_table(module, sizes={"h": 8}, dims=dims, classes={"last.weight": 0, "last.bias": 0})


def test_a_table_is_checked_on_positive_values_where_random_ones_give_no_numbers():
    module = Rooted()
    good, example = hidden_axes(module, scale=(None, "h")), torch.rand(2, 6)
    assert model_of(module, example=example, axes=good).axes is good
    with pytest.raises(ValueError, match="'h' is not an axis: permuting its channels changes the logits"):
        _ = model_of(module, example=example, axes=hidden_axes(module, scale=(None, None))).axes
    with torch.no_grad():
        module.scale.fill_(-1.0)
    with pytest.raises(ValueError, match="axes cannot be checked: the module's logits are not finite"):
        _ = model_of(module, example=example, axes=good).axes


def test_a_slice_too_narrow_for_the_model_is_one_line_before_the_first_round():
    """A table is not checked on one channel an axis: which widths are in use is the fleet's."""
    module = Largest()
    model = model_of(module, example=torch.rand(2, 6), axes=hidden_axes(module))
    params, method = model.initial_params(), HeteroFL(scaler=False)
    fleet = [Client(n, capacity, 0, 0, LocalTraining()) for n, capacity in enumerate((1.0, 0.6))]
    assert cautions(method, model, method.init(params), params, fleet) == []
    fleet.append(Client(2, 0.25, 0, 0, LocalTraining()))
    with pytest.raises(
        ValueError, match=r"capacity 0\.25: the model fails as a submodel of \d+ parameters: .*RuntimeE"
    ):
        cautions(method, model, method.init(params), params, fleet)


class Recurrent(nn.Module):
    """The last state of a recurrent layer, or of a cell that is called step by step."""

    def __init__(self, layer: nn.Module, features: int) -> None:
        super().__init__()
        self.embed, self.layer, self.classifier = nn.Embedding(VOCABULARY, 8), layer, nn.Linear(features, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x, state = self.embed(ids), None
        if isinstance(self.layer, nn.RNNBase):
            return self.classifier(self.layer(x)[0][:, -1])
        for step in x.unbind(1):
            state = self.layer(step, state)
        return self.classifier(state[0] if isinstance(state, tuple) else state)


def recurrent_axes(module: Recurrent) -> Axes:
    """One axis: what the layer gives. The state of a projected LSTM, in every gate, is two positions for each of it.

    (torch takes a state as wide as its projection for none.)
    """
    own = dict(module.layer.named_parameters())
    size = module.classifier.in_features
    gates = Part("out", before=next(iter(own.values())).shape[0] // 12, after=12 // size)
    entries = {"weight_ih": (gates, None), "weight_hh": (gates, "out"), "weight_hr": ("out", Part("out", after=2))}
    dims = {f"layer.{name}": entries.get(name.removesuffix("_l0"), (gates,)) for name in own}
    return axes_table(module, {"out": size}, {**dims, "classifier.weight": (None, "out")})


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("layer", "features"),
    [
        (nn.LSTM(8, 12, batch_first=True), 12),
        (nn.LSTM(8, 12, batch_first=True, proj_size=6), 6),
        (nn.GRU(8, 12, batch_first=True), 12),
        (nn.RNN(8, 12, batch_first=True), 12),
        (nn.LSTMCell(8, 12), 12),
        (nn.GRUCell(8, 12), 12),
        (nn.RNNCell(8, 12), 12),
    ],
    ids=lambda value: str(value).partition(",")[0] + ("proj" if "proj" in str(value) else ""),
)
def test_recurrent_layers_and_cells_run_at_their_small_size(layer, features):
    module = Recurrent(layer, features)
    axes = recurrent_axes(module)
    check_axes(module, axes, tokens())
    small = resize_module(module, axes, axes.widths(0.5)).layer
    assert (small.input_size, small.hidden_size, getattr(small, "proj_size", 0)) == (8, 6, 3 if features == 6 else 0)


class Positions(nn.Module):
    """A learned tensor of positions and channels, as in a ViT."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, 16), nn.Parameter(torch.randn(1, 7, 16))
        self.classifier = nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier((self.embed(ids) + self.position).mean(1))


class LayerScale(nn.Module):
    """A learned scale of channels, behind a convolution or in a residual branch, in a shape of the user's."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 1), nn.Conv2d(8, 8, 1)
        self.scale, self.classifier = nn.Parameter(torch.ones(shape)), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.classifier((x + self.scale * self.second(x).relu()).mean((2, 3)))


def test_channels_of_parameters_are_derived_whatever_models_came_before():
    for example in ((LayerScale(8, 1, 1), images()), (Positions(), tokens()), (LayerScale(1, 8, 1, 1), images())):
        module, inputs = example
        (size,) = derive_axes(module, inputs).sizes.values()
        assert size == (16 if isinstance(module, Positions) else 8)
    axes = derive_axes(LayerScale(8, 1, 1), images())
    assert axes.shape("scale", axes.widths(0.5)) == (4, 1, 1)


class Keeps(nn.Module):
    """Keeps an activation, draws random numbers in evaluation too, and has a buffer without room of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(64, 12), nn.Linear(12, 3)
        self.register_buffer("mean", torch.tensor([[0.5]]).expand(1, 64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.first(nn.functional.dropout(x.flatten(1) - self.mean, 0.5)).relu()
        return self.classifier(self.seen)


def test_axes_of_a_module_that_keeps_activations_and_draws_random_numbers():
    before = torch.get_rng_state()
    module = Keeps()
    drawn = torch.get_rng_state()  # its initial values
    assert derive_axes(module, images()).sizes == {"first": 12}
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not torch.equal(before, drawn)


class Reshapes(nn.Module):
    """Views its features in a size that it knows by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 12)
        self.classifier = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.first(x.flatten(1)).relu().view(-1, 12))


class AddsInput(nn.Module):
    """Adds the model's input to learned channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 1)
        self.classifier = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier((x + self.first(x)).mean(dim=(2, 3)))


class Pairs(nn.Module):
    """A bilinear layer, whose channels nobody follows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(64, 8), nn.Linear(64, 6)
        self.both, self.classifier = nn.Bilinear(8, 6, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.classifier(self.both(self.one(x), self.other(x)).relu())


class Interleaves(nn.Module):
    """A gated unit: the second half of the channels scales the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 12)
        self.classifier = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.first(x.flatten(1)).chunk(2, dim=1)
        return self.classifier(value * gate.sigmoid())


def test_sizes_that_code_writes_follow_the_slice():
    """``view(-1, 12)`` of 5 channels is a view of 5, in a copy of the slice and when it is pickled too."""
    module = Reshapes()
    axes = derive_axes(module, images())
    assert (axes.sizes, len(axes.sites)) == ({"first": 12}, 1)
    small = resize_module(module, axes, {"first": 5})
    expected = small.classifier(small.first(images().flatten(1)).relu())
    for copied in (small, copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        assert torch.equal(copied(images()), expected)
    assert module(images()).shape == (6, 3)


def test_models_that_write_no_sizes_run_as_they_are():
    axes = zoo("resnet8_group").axes()
    assert axes.sites == {}
    assert "forward" not in vars(resize_module(zoo("resnet8_group").module, axes, axes.widths(0.5)))


def test_a_gated_unit_is_cut_in_both_halves_alike():
    axes = derive_axes(Interleaves(), images())
    assert axes.sizes == {"first": 6}
    assert axes.dims["first.weight"][0] == (Part("first"), Part("first"))
    assert axes.dims["classifier.weight"][1] == (Part("first"),)


MOVES = "permuting its channels changes the logits"


def test_both_sides_of_a_bilinear_layer_are_axes():
    assert derive_axes(Pairs(), images()).sizes == {"one": 8, "other": 6, "both": 10}


class Follows(nn.Module):
    """Two layers, and a function between them."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.first, self.second, self.classifier = nn.Linear(64, 12), nn.Linear(12, 8), nn.Linear(8, 3)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.second(self.function(self.first(x.flatten(1)))).relu())


@pytest.mark.parametrize(
    ("module", "example", "sizes", "whole"),
    [
        (
            Follows(lambda x: x.cumsum(1)),
            images(),
            {"second": 8},
            {"first": "the model itself reads them in their order (cumsum)"},
        ),
        (
            Follows(lambda x: torch.fft.fft(x).real),
            images(),
            {"second": 8},
            {"first": "the model itself passes them to an operation that is not followed (_fft_r2c)"},
        ),
        (
            Follows(lambda x: x.argsort(1).float() * x),
            images(),
            {"second": 8},
            {"first": "the model itself reads them in their order (sort)"},
        ),
        (Follows(lambda x: x * (x.max(1, keepdim=True)[1] + 1)), images(), {"second": 8}, {"first": MOVES}),
        (
            AddsInput(),
            images(channels=4),
            {},
            {"first": "the model itself combines them with what is no parameter (add)"},
        ),
    ],
)
def test_what_cannot_be_cut_stays_whole_and_the_reason_names_the_layer(module, example, sizes, whole):
    axes = derive_axes(module, example)
    assert axes.sizes == sizes
    assert {name: axes.whole[name] for name in whole} == whole


class Turned(Follows):
    """Sums every pair of channels with itself turned, by an operation that looks channels up one by one."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        turned = torch.as_strided(x.detach().clone(), x.shape, x.stride()).unflatten(1, (6, 2)).flip(2).flatten(1)
        return self.classifier(self.second(x + turned / 2).relu())


def test_channels_of_a_pair_that_are_told_apart_go_together():
    axes = derive_axes(Turned(None), images())
    assert axes.sizes == {"first": 6, "second": 8}
    assert axes.dims["first.weight"][0] == (Part("first", after=2),)


def test_layers_that_are_named_stay_whole():
    module = zoo("resnet8_batch").module
    axes = derive_axes(module, zoo("resnet8_batch").example_inputs, whole=["blocks.1", "conv1"])
    assert axes.sizes == {"blocks.0.conv1": 8, "blocks.2.conv1": 16, "blocks.2.conv2": 16}
    assert axes.whole["blocks.1.conv1"] == "model.whole names it"
    with pytest.raises(ValueError, match=r"whole: the model has no module or parameter 'conv'; did you mean 'conv1'"):
        derive_axes(module, zoo("resnet8_batch").example_inputs, whole=["conv"])


class Endless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(64, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        while True:
            x = x + 1


def test_the_work_of_a_trace_is_bounded(monkeypatch):
    monkeypatch.setattr("fedfibos.channels.trace.MOST_OPERATIONS", 2_000)
    message = r"one forward pass takes more than 2,000 operations to follow; give a shorter example batch"
    with pytest.raises(ValueError, match=message):
        derive_axes(Endless(), images())


def test_a_forward_pass_that_fails_is_one_line():
    message = r"can't derive the model's channel axes: its forward pass fails on the example batch \(RuntimeError: "
    with pytest.raises(ValueError, match=message) as error:
        derive_axes(nn.Linear(3, 2), images())
    assert "\n" not in str(error.value)


def test_a_depthwise_convolution_of_the_input_is_not_sliced():
    module = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 8, 1), nn.Flatten(), nn.Linear(288, 2))
    axes = derive_axes(module, images(channels=3))
    assert axes.sizes == {"1": 8}


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ({"hiden": [0]}, "unknown axis 'hiden'; did you mean 'hidden'?"),
        ({"hidden": [0, 0]}, "channels of axis 'hidden' must not repeat, got [0, 0]"),
        ({"hidden": [12]}, "channels of axis 'hidden' must be in [0, 12), got [12]"),
        ({"hidden": [-1]}, "channels of axis 'hidden' must be in [0, 12), got [-1]"),
    ],
)
def test_bad_channels(channels, message):
    module = LSTMClassifier()
    kept = {axis: torch.tensor(values) for axis, values in channels.items()}
    with pytest.raises(ValueError) as error:  # noqa: PT011  the whole message is compared
        lstm_axes(module).index(layout_of(module), kept)
    assert str(error.value) == message


def test_no_channels_at_all():
    module = LSTMClassifier()
    with pytest.raises(ValueError, match="channels of axis 'hidden' must be 1 to 12 int64 numbers"):
        lstm_axes(module).index(layout_of(module), {"hidden": torch.zeros(0, dtype=torch.int64)})


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"wieght": (None, "in")}, "the model has no tensor 'wieght'; did you mean 'weight'?"),
        ({"weight": ("in",)}, "tensor 'weight' of shape (2, 4) needs 2 entries, got ('in',)"),
        ({"weight": (None, "inn")}, "unknown axis 'inn' of tensor 'weight'; did you mean 'in'?"),
        ({"weight": ("in", None)}, "the parts of tensor 'weight' add up to shape (4, 4), it is (2, 4)"),
    ],
)
def test_bad_tables(dims, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011  the whole message is compared
        axes_table(nn.Linear(4, 2), {"in": 4}, dims)
    assert str(error.value) == message
