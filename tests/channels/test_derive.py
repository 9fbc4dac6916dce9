"""Which dimensions are the same channels, derived for layers of every kind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfibos.channels.axes import Part
from fedfibos.channels.check import check_axes
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.resize import resize_module
from fedfibos.params import layout_of
from zoo import NUM_CLASSES, VOCABULARY, Logits, LSTMClassifier, images, lstm_axes, tokens, zoo


def index(module: nn.Module, example: Tensor, **channels: list[int]) -> list[int]:
    axes = derive_axes(module, example)
    kept = {axis: torch.tensor(values) for axis, values in channels.items()}
    return axes.index(layout_of(module), kept)[0].tolist()


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


def test_inputs_and_class_scores_are_never_sliced(case):
    example, axes, layout = case
    shapes = dict(zip(layout.names, axes.small_layout(layout, axes.widths(0.01)).shapes, strict=True))
    first, last = layout.names[0], next(name for name in layout.names if "classifier" in name and "weight" in name)
    full_first = dict(zip(layout.names, layout.shapes, strict=True))[first]
    assert shapes[last][0] == NUM_CLASSES
    if first != "position":  # an embedding keeps its rows, other first layers their columns
        kept = 0 if example.name == "lstm" or first.startswith("embed.") else 1
        assert shapes[first][kept] == full_first[kept]


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


def test_the_gates_of_an_lstm_are_derived_as_a_table_by_hand_says():
    module = LSTMClassifier()
    by_hand, derived = lstm_axes(module), derive_axes(module, tokens())
    check_axes(module, by_hand, tokens())
    assert derived.sizes == {"embed": 8, "lstm": 12}
    for ours, theirs in (({"embed": [1, 6], "lstm": [11, 0, 4]}, {"embed": [1, 6], "hidden": [11, 0, 4]}),):
        kept = [{a: torch.tensor(c) for a, c in channels.items()} for channels in (ours, theirs)]
        index = [axes.index(layout_of(module), own)[0] for axes, own in zip((derived, by_hand), kept, strict=True)]
        assert torch.equal(*index)


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
            {"first": "the model itself transforms them together (_fft_r2c)"},
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


def test_a_depthwise_convolution_of_the_input_is_not_sliced():
    module = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 8, 1), nn.Flatten(), nn.Linear(288, 2))
    axes = derive_axes(module, images(channels=3))
    assert axes.sizes == {"1": 8}


def test_no_channels_at_all():
    module = LSTMClassifier()
    with pytest.raises(ValueError, match="channels of axis 'hidden' must be 1 to 12 int64 numbers"):
        lstm_axes(module).index(layout_of(module), {"hidden": torch.zeros(0, dtype=torch.int64)})
