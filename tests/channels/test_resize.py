"""Smaller modules: they run, they compute what the masked model does, and leave the module as it was."""

import copy

import pytest
import torch
from torch import Tensor, nn
from windows import windows

from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.check import check_axes
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.readers import GateSum, readers
from fedfibos.channels.resize import resize_module
from fedfibos.params import layout_of, params_of
from zoo import NUM_CLASSES, VOCABULARY, images, tokens, zoo


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


class Summed(nn.Module):
    """Two groups whose outputs are added up (split attention): both stay, and are cut alike."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        kind = nn.ConvTranspose1d if transposed else nn.Conv1d
        self.first, self.grouped, self.last = nn.Linear(4, 8), kind(8, 12, 1, groups=2), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = self.grouped(self.first(x)[..., None])[..., 0].chunk(2, 1)
        return self.last(one + 2 * other)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_grouped_convolution_whose_groups_must_stay_is_cut_within_each(transposed):
    module, x = Summed(transposed), torch.randn(5, 4)
    axes = derive_axes(module, x)
    assert list(axes.sizes.values()) == [4, 6]
    assert axes.whole == {}
    first, second = axes.sizes
    small = resize_module(module, axes, {first: 3, second: 1})
    assert small(x).shape == (5, 3)
    assert (small.grouped.groups, small.grouped.in_channels, small.grouped.out_channels) == (2, 6, 2)


@pytest.mark.parametrize("transposed", [False, True])
def test_channels_within_groups_are_read_by_the_groups(transposed):
    module, x = Summed(transposed), torch.randn(5, 4)
    axes = derive_axes(module, x)
    named = dict(module.named_parameters())
    gate = torch.ones(4, requires_grad=True)
    handle = module.grouped.register_forward_pre_hook(lambda _, args: args[0] * gate.repeat(2)[:, None])
    (expected,) = torch.autograd.grad(module(x).square().sum(), gate)
    handle.remove()
    gradients = torch.autograd.grad(module(x).square().sum(), list(named.values()))
    got = GateSum(readers(module, axes), axes, list(named), {})(list(named.values()), gradients)
    torch.testing.assert_close(got[:4], expected, rtol=1e-4, atol=1e-5)
