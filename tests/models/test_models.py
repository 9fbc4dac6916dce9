"""The bundled models: sizes, seeds, options, errors."""

import pickle

import pytest
import torch

from fedfibos.common.validation import listed
from fedfibos.data.images import TensorData
from fedfibos.local import local_training
from fedfibos.model import model_of
from fedfibos.models import MODELS, build
from fedfibos.params import layout_of, params_of
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(("num_classes", "expected"), [(10, 11_173_962), (100, 11_220_132)])
def test_resnet18_has_the_published_number_of_parameters(norm, num_classes, expected):
    assert count(build("resnet18", num_classes, (3, 32, 32), norm=norm)) == expected


def test_resnet18_maskable_parameters_are_all_but_the_9600_of_normalisation():
    layout = layout_of(build("resnet18", 10, (3, 32, 32)))
    assert (layout.size, layout.num_maskable) == (11_173_962, 11_164_362)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "text"])  # text: tests/models/test_text.py
def test_logits_for_every_image_size(name, shape):
    options = {"channels": (4, 4, 8, 8)} if name == "resnet18" else {}
    model = build(name, 7, shape, **options)
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lenet", "resnet8"])
def test_seed_decides_the_values_and_leaves_the_global_stream_alone(name):
    def flat(seed):
        module = build(name, 3, (1, 8, 8), seed=seed)
        return params_of(module, layout_of(module)).flat

    before = torch.get_rng_state()
    first, again, other = flat(1), flat(1), flat(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_hidden_sizes_of_the_mlp():
    shapes = [tuple(p.shape) for p in build("mlp", 3, (2, 2), hidden=(5, 6)).parameters()]
    assert shapes == [(5, 4), (5,), (6, 5), (6,), (3, 6), (3,)]
    assert count(build("mlp", 3, (4,), hidden=())) == 15


def test_lenet_is_the_network_of_the_first_federated_learning_paper():
    """1,663,370 parameters, as McMahan et al. count them."""
    assert count(build("lenet", 10, (1, 28, 28))) == 1_663_370


def test_cnn_without_norm_has_biases_and_no_normalisation():
    layout = layout_of(build("cnn", 3, (1, 8, 8), norm="none"))
    assert layout.num_maskable == layout.size
    assert "features.0.bias" in layout.names


def test_group_size():
    norms = [m for m in build("resnet8", 3, (1, 8, 8), group_size=2).modules() if isinstance(m, torch.nn.GroupNorm)]
    assert {m.num_channels // m.num_groups for m in norms} == {2}
    assert len(norms) == 9


def test_group_norm_normalises_each_group_of_four_channels_by_itself():
    """Changing channel 4 leaves the normalised channels 0 to 3 as they were, and moves 5 to 7."""
    norm = build("cnn", 3, (1, 8, 8), channels=(8,)).features[1]
    x = torch.randn(1, 8, 5, 5, generator=torch.Generator().manual_seed(0))
    y = x.clone()
    y[:, 4] += 3 * x[:, 5]
    assert torch.equal(norm(x)[:, :4], norm(y)[:, :4])
    assert not torch.allclose(norm(x)[:, 5:], norm(y)[:, 5:], atol=1e-2)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet", {}, f"model.name must be {listed(MODELS)}, got 'resnet'; did you mean 'resnet8'?"),
        ("vit", {}, f"model.name must be {listed(MODELS)}, got 'vit'"),
        ("mlp", {"hiden": (3,)}, "an option of mlp must be 'hidden', got 'hiden'; did you mean 'hidden'?"),
        ("mlp", {"norm": "batch"}, "the mlp has no normalisation, norm must be 'none', got 'batch'"),
        ("mlp", {"hidden": (0,)}, "layer sizes of the mlp must be at least 1, got [64, 0]: see model.options.hidden"),
        ("cnn", {"norm": "layer"}, "norm must be 'group', 'batch' or 'none', got 'layer'"),
        ("cnn", {"group_size": 0}, "group_size must be at least 1, got 0"),
        ("cnn", {"channels": (6,)}, "norm 'group' needs channels in multiples of 4, got 6"),
        ("cnn", {"channels": (4,) * 5}, "images of 8x8 are too small for 5 stages"),
        ("lenet", {"hidden": 0}, "channels and hidden of the lenet must be at least 1, got [32, 64] and hidden=0"),
        ("lenet", {"channels": (4,) * 4}, "images of 8x8 are too small for 4 stages"),
        ("resnet8", {"norm": "none"}, "norm of a resnet must be 'group' or 'batch', got 'none'"),
        ("resnet8", {"channels": (4,)}, "a resnet needs channels for each of its 3 stages, got [4]"),
    ],
)
def test_one_line_errors(name, options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011  the whole message is compared
        build(name, 3, (1, 8, 8), **options)
    assert str(error.value) == message


def test_image_models_need_three_dimensions():
    with pytest.raises(
        ValueError,
        match=r"cnn needs inputs of shape \(channels, height, width\), got \(64,\): these are no images; model",
    ):
        build("cnn", 3, (64,))


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_resnet8_learns(norm):
    """40 steps of SGD at .1 tell apart classes that differ in the frequency of a grating."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 4
    ramp = torch.arange(8.0)
    waves = torch.sin(ramp * (labels[:, None] + 1) * 0.6)[:, None, None, :].expand(-1, 1, 8, -1)
    images = waves + 0.3 * torch.randn(waves.shape, generator=generator)
    model = build("resnet8", 4, (1, 8, 8), norm=norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        rows = torch.randint(120, (32,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
    assert float((model(images).argmax(1) == labels).float().mean()) > 0.9


def test_channels_last_sums_in_another_order_and_survives_pickling():
    """The same training to rounding, other bits; the layout reaches the module's input."""
    generator = torch.Generator().manual_seed(0)
    data = TensorData(torch.randn(40, 3, 8, 8, generator=generator), torch.arange(40) % 4)
    client = Client(0, 1.0, 0, 0, LocalTraining(steps=3, batch_size=10), data)
    module = build("lenet", 4, (3, 8, 8), channels=(8, 16), hidden=12)
    plain, last = model_of(module), pickle.loads(pickle.dumps(model_of(module, channels_last=True)))
    assert last.place(data.batch(torch.arange(5))).is_contiguous(memory_format=torch.channels_last)
    assert last.place(torch.zeros(5, 7)).shape == (5, 7)
    deltas = [local_training(m, m.initial_params(), full(m.layout), client).delta for m in (plain, last, last)]
    torch.testing.assert_close(deltas[0], deltas[1], rtol=1e-3, atol=1e-6)
    assert not torch.equal(deltas[0], deltas[1])
    assert torch.equal(deltas[1], deltas[2])
