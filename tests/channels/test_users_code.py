"""Ways of writing models that users bring: packed sequences, projections of their own, arguments by name, routing."""

from dataclasses import replace

import pytest
import torch
from test_patterns import runs_on_any_batch
from torch import Tensor, nn
from torch.nn.utils import rnn

from fedfibos.channels.axes import Axes, Part
from fedfibos.channels.check import check_permutations, mixed_widths
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.resize import resize_module
from zoo import NUM_CLASSES, VOCABULARY, images, tokens

FEATURES = torch.randn(6, 5, 9, generator=torch.Generator().manual_seed(0))


class Packed(nn.Module):
    """A recurrent layer over texts of several lengths; its last states, or the largest of its outputs."""

    def __init__(self, kind: type[nn.RNNBase], padded: bool = False) -> None:
        super().__init__()
        self.embed, self.padded = nn.Embedding(VOCABULARY, 8), padded
        self.cells = kind(8, 6, batch_first=True, bidirectional=not padded)
        self.classifier = nn.Linear(6 if padded else 12, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        lengths = (ids > 3).sum(1).clamp(min=1)
        packed = rnn.pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False)
        outputs, states = self.cells(packed)
        if self.padded:
            return self.classifier(rnn.pad_packed_sequence(outputs, batch_first=True)[0].amax(1))
        last = states[0] if isinstance(states, tuple) else states
        return self.classifier(torch.cat([last[-2], last[-1]], 1))


@pytest.mark.parametrize(("kind", "padded"), [(nn.LSTM, False), (nn.GRU, False), (nn.RNN, False), (nn.LSTM, True)])
def test_recurrent_layers_over_packed_texts_are_cut(kind, padded):
    assert runs_on_any_batch(Packed(kind, padded), tokens()) == {"embed": 8, "cells": 6}


class Apart(nn.Module):
    """torch's attention where keys and values have widths of their own."""

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(9, 8), nn.Linear(9, 6), nn.Linear(9, 10)
        self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=10, batch_first=True, **settings)
        self.classifier = nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.attention(self.q(x), self.k(x), self.v(x))[0].mean(1))


@pytest.mark.parametrize("settings", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=["plain", "biases"])
def test_attention_with_keys_of_another_width_runs_at_unequal_widths(settings):
    """Heads are cut alike in all three projections, whatever is left of the keys' and the values' own channels."""
    module = Apart(**settings)
    axes = derive_axes(module, FEATURES)
    assert axes.sizes == {"q": 4, "k": 6, "v": 10}
    small = resize_module(module, axes, {"q": 1, "k": 5, "v": 3})
    assert small(FEATURES).shape == (6, NUM_CLASSES)
    assert (small.attention.embed_dim, small.attention.kdim, small.attention.vdim) == (2, 5, 3)


def test_axes_with_one_share_in_the_first_trial_have_two_in_the_second():
    axes = Axes({f"a{i}": 20 for i in range(6)}, {})
    assert list(mixed_widths(axes).values()) == [8, 14, 11, 8, 14, 11]
    assert list(mixed_widths(axes, turn=1).values()) == [8, 14, 11, 14, 11, 8]


class Named(nn.Module):
    """Sizes by name, and a call that is written in no way that is known."""

    def __init__(self, function: object, reads: int) -> None:
        super().__init__()
        self.first, self.function, self.classifier = nn.Linear(9, 8), function, nn.Linear(reads, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.function(self.first(x)).mean(1))


def _narrow(h: Tensor) -> Tensor:
    return h.narrow(2, start=0, length=4) * h.narrow(dim=2, start=4, length=4)


def _split(h: Tensor) -> Tensor:
    one, other = torch.split(tensor=h, split_size_or_sections=4, dim=-1)
    return one * other


def _zeros(h: Tensor) -> Tensor:
    return h + torch.zeros(torch.tensor(len(h)), 5, 8)


@pytest.mark.parametrize(("function", "reads", "size"), [(_narrow, 4, 4), (_split, 4, 4), (_zeros, 8, 8)])
def test_sizes_are_followed_however_the_call_names_them(function, reads, size):
    assert runs_on_any_batch(Named(function, reads), FEATURES) == {"first": size}


class Flattened(nn.Module):
    """A convolution, flattened by a number that was worked out by hand, as tutorials do."""

    def __init__(self, view) -> None:
        super().__init__()
        self.first, self.hidden = nn.Conv2d(1, 6, 3), nn.Linear(6 * 36, 10)
        self.view, self.classifier = view, nn.Linear(10, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.hidden(self.view(self.first(x).relu())).relu())


@pytest.mark.parametrize(
    "view",
    [
        lambda h: h.view(-1, 6 * 6 * 6),
        lambda h: h.reshape(len(h), 216),
        lambda h: h.view(h.shape[0], h.shape[1] * h.shape[2] * h.shape[3]),
        lambda h: h.permute(0, 2, 3, 1).reshape(-1, 216),
    ],
)
def test_channels_that_lie_beside_pixels_in_a_row_are_cut(view):
    assert runs_on_any_batch(Flattened(view), images()) == {"first": 6, "hidden": 10}


class Batched(nn.Module):
    """Heads and examples in one dimension: 4 times the examples is another number for every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(9, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).view(len(x), 4, 2).reshape(len(x) * 4, 2)
        return self.classifier(h.relu().view(len(x), 8))


def test_a_length_of_channels_and_examples_is_tried_on_another_batch():
    """Of the code's number, 4 heads of every example, a slice has its own share, whatever the batch."""
    assert runs_on_any_batch(Batched(), FEATURES[:, 0]) == {"first": 4}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_an_lstm_with_projections_keeps_more_cells_than_projections():
    """Of as many torch takes it for one without, and reads beyond its weights."""
    layer = nn.LSTM(9, 8, proj_size=4, batch_first=True)
    axes = derive_axes(Last(layer, 4), FEATURES)
    assert axes.sizes == {"layer": 4}
    assert axes.dims["layer.weight_hr_l0"] == ((Part("layer"),), (Part(None, after=8),))


class Last(nn.Module):
    """A recurrent layer and a classifier of its last outputs."""

    def __init__(self, layer: nn.Module, outputs: int) -> None:
        super().__init__()
        self.layer, self.classifier = layer, nn.Linear(outputs, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.layer(x)[0][:, -1])


class Whole(nn.Module):
    """torch's whole transformer, which checks the width that it was made with."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(9, 8), nn.Linear(8, NUM_CLASSES)
        self.layer = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.layer(self.first(x), self.first(x)).mean(1))


def test_torchs_whole_transformer_is_cut():
    axes = derive_axes(Whole(), FEATURES)
    assert axes.sizes == {"first": 4, "layer.encoder.layers.0.linear1": 16, "layer.decoder.layers.0.linear1": 16}
    assert resize_module(Whole(), axes, {"first": 3}).layer.d_model == 6


class Prototypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.prototypes = nn.Linear(9, 8), nn.Parameter(torch.randn(NUM_CLASSES, 8))

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(self.first(x), self.prototypes)


def test_distances_from_prototypes_are_followed():
    assert derive_axes(Prototypes(), FEATURES[:, 0]).sizes == {"first": 8}


class Gated(nn.Module):
    """Mixes positions by a convolution of width 1 over them, channel by channel (gMLP)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.mix = nn.Linear(9, 16), nn.LayerNorm(8), nn.Conv1d(5, 5, 1)
        self.classifier = nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.first(x).chunk(2, -1)
        return self.classifier((value * self.mix(self.norm(gate))).mean(1))


def test_channels_that_a_convolution_takes_one_by_one_are_cut():
    assert derive_axes(Gated(), FEATURES).sizes == {"first": 8}


class Routed(nn.Module):
    """Every example goes through one of two experts, and is written back to its place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(9, 8), nn.Linear(8, NUM_CLASSES)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 8)) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        routes, x = (x[:, 0, 0] > 0).long(), self.first(x).mean(1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (routes == number).nonzero()[:, 0]
            out[rows] = expert(x[rows])
        return self.classifier(x + out)


def test_experts_are_cut_where_examples_are_routed_by_number():
    assert runs_on_any_batch(Routed(), FEATURES) == {"first": 8, "experts.0.0": 6, "experts.1.0": 6}


class Bags(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bags, self.classifier = nn.EmbeddingBag(VOCABULARY, 8, mode=mode), nn.Linear(8, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier(self.bags(ids))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_are_cut(mode):
    module = Bags(mode)
    assert runs_on_any_batch(module, tokens()) == {"bags.weight": 8}
    axes = derive_axes(module, tokens())
    assert resize_module(module, axes, {"bags.weight": 3}).bags.embedding_dim == 3


def test_embeddings_with_a_largest_norm_are_cut():
    net = nn.Sequential(nn.Embedding(VOCABULARY, 8, max_norm=1.0), nn.Flatten(), nn.Linear(8 * 7, NUM_CLASSES))
    assert derive_axes(net, tokens()).sizes == {"0": 8}


def test_a_slice_of_spectral_norm_keeps_the_vectors_of_the_full_model():
    """In training every look at such a weight is a step of the power iteration, which changes them."""
    norm = torch.nn.utils.parametrizations.spectral_norm
    net = nn.Sequential(norm(nn.Linear(9, 8)), nn.ReLU(), norm(nn.Linear(8, 6)), nn.Linear(6, NUM_CLASSES))
    axes = derive_axes(net, FEATURES[:, 0])
    assert axes.sizes == {"0.bias": 8, "2.bias": 6}
    before = net[0].parametrizations.weight[0]._v.clone()
    small = resize_module(net, axes, axes.widths(0.5))
    assert small.training
    assert small[0].training
    assert torch.equal(small[0].parametrizations.weight[0]._v, before)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_weight_that_an_older_weight_norm_has_computed_does_not_stop_the_derivation():
    net = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(9, 8)), nn.ReLU(), nn.Linear(8, NUM_CLASSES))
    net(FEATURES[:, 0])
    axes = derive_axes(net, FEATURES[:, 0])
    assert axes.sizes == {"0": 8}
    assert axes.dims["0.weight_v"] == ((Part("0"),), (Part(None, after=9),))
    check_permutations(net, replace(axes, sites={}), FEATURES[:, 0])


class Around(nn.Module):
    """In training half of the batches go around the second layer, which ties its channels to the first one's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.classifier = nn.Linear(9, 8), nn.Linear(8, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if not self.training or torch.rand(()) < 0.5:
            x = self.second(x)
        return self.classifier(x)


def test_ways_that_a_model_takes_only_in_training_are_followed():
    axes = derive_axes(Around(), FEATURES[:, 0])
    assert axes.sizes == {"first": 8}
    assert axes.dims["second.weight"] == ((Part("first"),), (Part("first"),))


class Auxiliary(nn.Module):
    """In training a second head, on channels that nothing else reads, is added; its noise has a size of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(9, 8), nn.Linear(8, NUM_CLASSES)
        self.side, self.head = nn.Linear(8, 6), nn.Linear(6, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).relu()
        if not self.training:
            return self.classifier(h)
        return self.classifier(h) + self.head(self.side(h) * torch.randn(6))


def test_a_head_that_runs_in_training_alone_is_cut():
    assert derive_axes(Auxiliary(), FEATURES[:, 0]).sizes == {"first": 8, "side": 6}


class Experts(nn.Module):
    """Every example goes to the expert that a gate likes most: a small batch does not reach all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.classifier = nn.Linear(9, 8), nn.Linear(8, 4), nn.Linear(8, NUM_CLASSES)
        self.experts = nn.ModuleList(nn.Linear(8, 6) for _ in range(4))
        self.back = nn.ModuleList(nn.Linear(6, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        chosen, out = self.gate(h).argmax(1), torch.zeros_like(h)
        for n in chosen.unique().tolist():
            out[chosen == n] += self.back[n](self.experts[n](h[chosen == n]).relu())
        return self.classifier(out)


def test_experts_that_the_example_does_not_reach_are_followed():
    axes = derive_axes(Experts(), FEATURES[:2, 0])
    assert axes.sizes == {"first": 8, "experts.0": 6, "experts.1": 6, "experts.2": 6, "experts.3": 6}
    assert all(axes.dims[f"experts.{n}.weight"] == ((Part(f"experts.{n}"),), (Part("first"),)) for n in range(4))


class Sampled(nn.Module):
    """A sample of a latent space, in evaluation too, and dropout that is never off."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.spread, self.classifier = nn.Linear(9, 8), nn.Linear(9, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.mean(x), self.spread(x)
        return self.classifier(nn.functional.dropout(mean + (0.5 * spread).exp() * torch.randn_like(spread)))


def test_noise_of_its_own_does_not_keep_a_channel_whole():
    axes = derive_axes(Sampled(), FEATURES[:, 0])
    assert axes.sizes == {"mean": 8}
    assert axes.dims["spread.weight"][0] == (Part("mean"),)


class TextWindows(nn.Module):
    """Convolutions over words whose kernels are as wide as an embedding: the channels lie where an image has rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.windows = nn.Embedding(30, 10), nn.Conv2d(1, 6, (3, 10))
        self.classifier = nn.Linear(6, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier(self.windows(self.table(ids).unsqueeze(1)).relu().squeeze(3).max(2)[0])


def test_embeddings_that_a_kernel_spans_are_cut():
    axes = derive_axes(TextWindows(), tokens())
    assert axes.sizes == {"table": 10, "windows": 6}
    assert axes.shape("windows.weight", {"table": 4, "windows": 2}) == (2, 1, 3, 4)


class PaddedWindows(nn.Module):
    """A depthwise convolution that zeros around it make as wide as its map: of one pixel, or of three."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.first, self.pixels = nn.Conv2d(3, 6, 3, stride=2), pixels
        self.pad, self.windows = nn.ZeroPad2d((5 - pixels) // 2), nn.Conv2d(6, 6, 5, groups=6)
        self.classifier = nn.Linear(6, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.first(x), self.pixels)
        return self.classifier(self.windows(self.pad(x)).flatten(1))


@pytest.mark.parametrize("pixels", [1, 3])
def test_positions_between_zeros_are_no_channels(pixels):
    """At this size the outer positions of the kernel see zeros alone, and permuting these changes nothing."""
    axes = derive_axes(PaddedWindows(pixels), torch.randn(2, 3, 12, 12))
    assert axes.sizes == {"first": 6}
    assert axes.shape("windows.weight", {"first": 2}) == (2, 1, 5, 5)


class Spectral(nn.Module):
    """The layer of a Fourier neural operator: channels are mixed by frequency."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(1, 8), nn.Linear(8, NUM_CLASSES)
        self.mix = nn.Parameter(torch.randn(8, 6, 3, 2) / 8)
        self.last = nn.Conv1d(6, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        waves = torch.fft.rfft(self.first(x[..., None]).transpose(1, 2))[..., :3]
        mixed = torch.einsum("bif,iof->bof", waves, torch.view_as_complex(self.mix))
        return self.classifier(self.last(torch.fft.irfft(mixed, n=9)).mean(2))


def test_channels_beside_a_fourier_transform_are_cut():
    axes = derive_axes(Spectral(), FEATURES[:, 0])
    assert axes.sizes == {"first": 8, "last": 8, "mix": 6}
    assert axes.dims["mix"][:2] == ((Part("first"),), (Part("mix"),))


class Asserting(nn.Module):
    """Compares a size with a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(9, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if h.shape[1] != 8:
            raise AssertionError
        return self.classifier(h)


def test_an_assertion_that_a_narrower_copy_fails_is_named_by_its_line():
    line = Asserting.forward.__code__.co_firstlineno + 3
    why = derive_axes(Asserting(), FEATURES[:, 0]).whole["first"]
    assert why.startswith("a narrower copy does not run (")
    assert f"test_users_code.py, line {line}: AssertionError: no message" in why


class Choosing(nn.Module):
    """Goes around the second layer by what the inputs are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.classifier = nn.Linear(9, 8), nn.Linear(8, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.classifier(self.second(h) if x.abs().max() < 9 else h)


def test_ways_that_a_model_takes_by_its_inputs_are_tried():
    axes = derive_axes(Choosing(), FEATURES[:, 0])
    assert axes.sizes == {}
    assert axes.whole["first"].endswith("of another batch)")


def test_a_model_that_does_not_train_on_the_example_is_cut_all_the_same():
    """Batch norm needs more than one example of it in training."""
    net = nn.Sequential(nn.Linear(9, 8), nn.BatchNorm1d(8), nn.Linear(8, NUM_CLASSES))
    assert derive_axes(net, FEATURES[:1, 0]).sizes == {"0": 8}


class Nothing(nn.Module):
    """Has a tensor without an entry, as a layer of width 0 has."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.none = nn.Linear(9, 8), nn.Parameter(torch.zeros(0, 8))
        self.classifier = nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.first(x) + self.none.sum())


def test_a_tensor_without_entries_does_not_stop_the_derivation():
    assert derive_axes(Nothing(), FEATURES[:, 0]).sizes == {"first": 8}


class Twice(nn.Module):
    """One line of code splits channels, which are cut, and then inputs, which are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.classifier = nn.Linear(9, 8), nn.Linear(9, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        pieces = [piece for h in (self.first(x), x) for piece in h.split([4, h.shape[-1] - 4], -1)]
        return self.classifier(torch.cat(pieces[:2], -1) + self.second(torch.cat(pieces[2:], -1)))


def test_a_line_that_splits_channels_may_split_something_else_too():
    assert runs_on_any_batch(Twice(), FEATURES[:, 0]) == {"first": 4, "first[1]": 4}


class Folded(nn.Module):
    """Puts channels beside the examples, mixes the positions of each, and takes both apart again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mix, self.classifier = nn.Conv2d(1, 8, 1), nn.Linear(64, 64), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        b, c = h.shape[:2]
        return self.classifier(self.mix(h.reshape(b * c, 64)).reshape(b, c, 64).mean(2))


def test_half_of_the_channels_of_twice_as_many_examples_are_not_taken_for_the_full_model():
    axes = derive_axes(Folded(), images(batch=2))
    assert axes.sizes == {"first": 8, "mix": 64}
    assert resize_module(Folded(), axes, {"first": 4})(images(batch=4)).shape == (4, NUM_CLASSES)


class Grouped(nn.Module):
    """Experts as one product of groups of rows; its kernel reads four numbers at once."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(9, 16), nn.Linear(24, NUM_CLASSES)
        self.experts = nn.Parameter(torch.randn(2, 16, 24) / 4)

    def forward(self, x: Tensor) -> Tensor:
        ends = torch.tensor([len(x) // 2, len(x)], dtype=torch.int32)
        return self.classifier(torch._grouped_mm(self.first(x), self.experts, offs=ends).relu())


def test_experts_in_one_product_are_cut_in_fours():
    axes = derive_axes(Grouped(), FEATURES[:, 0])
    assert axes.sizes == {"first": 4, "experts": 6}
    assert axes.dims["experts"][1:] == ((Part("first", after=4),), (Part("experts", after=4),))
