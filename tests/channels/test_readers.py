"""Gate derivatives summed from weights equal autograd's with explicit gates, for every kind of layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.nn.utils.parametrizations import weight_norm

from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.readers import GateSum, readers
from fedfibos.channels.resize import resize_module
from zoo import NUM_CLASSES, ZOO, images, tokens, zoo

READING = (nn.Linear, nn.modules.conv._ConvNd)


def by_weights(module: nn.Module, axes: Axes, inputs: object, labels: Tensor) -> Tensor:
    named = dict(module.named_parameters())
    loss = cross_entropy(module(inputs), labels)
    gradients = torch.autograd.grad(loss, list(named.values()))
    return GateSum(readers(module, axes), axes, list(named), {})(list(named.values()), gradients)


def spread(gates: dict[str, Tensor], parts: tuple[Part, ...]) -> Tensor:
    """The gate of every position along a dimension."""
    pieces = []
    for part in parts:
        each = torch.ones(1) if part.axis is None else gates[part.axis]
        pieces.append(each[None, :, None].expand(part.before, -1, part.after).reshape(-1))
    return torch.cat(pieces)


def gated(module: nn.Module, axes: Axes, gates: dict[str, Tensor]) -> list[torch.utils.hooks.RemovableHandle]:
    """Multiply what enters linear layers and convolutions that mix channels by the gates of its channels."""
    handles = []
    for name, layer in module.named_modules():
        if not isinstance(layer, READING) or getattr(layer, "groups", 1) > 1:
            continue
        dim = 0 if isinstance(layer, nn.modules.conv._ConvTransposeNd) else 1
        parts = axes.dims[f"{name}.weight" if name else "weight"][dim]

        def gate(layer: nn.Module, args: tuple[Tensor, ...], parts: tuple[Part, ...] = parts) -> tuple[Tensor, ...]:
            along = spread(gates, parts)
            shape = (-1,) if isinstance(layer, nn.Linear) else (1, -1, *[1] * (args[0].dim() - 2))
            return (args[0] * along.view(shape),)

        handles.append(layer.register_forward_pre_hook(gate))
    return handles


def loss_under(module: nn.Module, axes: Axes, gates: dict[str, Tensor], inputs: object, labels: Tensor) -> Tensor:
    handles = gated(module, axes, gates)
    try:
        return cross_entropy(module(inputs), labels)
    finally:
        for handle in handles:
            handle.remove()


class Transposed(nn.Module):
    """Transposed convolutions, with and without a normalisation between."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.norm = norm
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.classifier = nn.Linear(6, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.up(self.norm(self.down(x)).relu()).relu().mean(dim=(2, 3)))


class Gated(nn.Module):
    """A gated linear unit between layer normalisations, in a residual stream with attention written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.up, self.gate, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        self.classifier = nn.Linear(8, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(2, (-1, 4)).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = ((q @ k.transpose(2, 3) / 2).softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        y = self.norm2(x)
        x = x + self.down(self.up(y) * self.gate(y).sigmoid())
        return self.classifier(x.mean(1))


def _more(name: str):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        if name == "gated":
            module, inputs = Gated(), tokens()
            return module, derive_axes(module, inputs, {"query": 4}), inputs
        norms = {"batch": nn.BatchNorm2d(8), "group": nn.GroupNorm(4, 8), "layer": nn.GroupNorm(1, 8)}
        module, inputs = Transposed(norms[name]), images()
        return module, derive_axes(module, inputs), inputs


class LastLayerNorm(nn.Module):
    """LayerNorm over the channels of each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


NORMS = {"batch": lambda: nn.BatchNorm2d(8), "layer": LastLayerNorm, "group": lambda: nn.GroupNorm(4, 8)}
KINDS = {
    "linear": lambda: nn.Linear(8, 6),
    "conv": lambda: nn.Conv2d(8, 6, 3, padding=1),
    "grouped": lambda: nn.Conv2d(8, 8, 3, padding=1, groups=4),
    "depthwise": lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8),
    "transposed": lambda: nn.ConvTranspose2d(8, 6, 2, stride=2),
    "flatten": lambda: nn.Linear(32, 6),
    "concat": lambda: nn.Conv2d(8, 6, 1),
    "residual": lambda: nn.Conv2d(8, 8, 3, padding=1),
    "shared": lambda: nn.Conv2d(8, 8, 1),
    "glu": lambda: nn.Conv2d(8, 12, 1),
}


class OfAKind(nn.Module):
    """A convolution, a normalisation, then a layer of some kind and a classifier."""

    def __init__(self, kind: str, norm: str) -> None:
        super().__init__()
        self.kind, self.stem, self.norm, self.body = kind, nn.Conv2d(1, 8, 3, padding=1), NORMS[norm](), KINDS[kind]()
        widths = {"concat": 14, "grouped": 8, "depthwise": 8, "residual": 8, "shared": 8}
        self.classifier = nn.Linear(widths.get(kind, 6), NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.stem(x)).relu()
        if self.kind == "linear":
            return self.classifier(self.body(y.mean((2, 3))).relu())
        if self.kind == "flatten":
            return self.classifier(self.body(nn.functional.avg_pool2d(y, 4).flatten(1)).relu())
        z = self.body(y)
        if self.kind == "glu":
            up, gate = z.chunk(2, 1)
            z = up * gate.sigmoid()
        elif self.kind == "concat":
            z = torch.cat([y, z.relu()], 1)
        elif self.kind == "residual":
            z = y + z.relu()
        elif self.kind == "shared":
            z = y + z.tanh()
            z = z + self.body(z).tanh()
        return self.classifier(z.relu().mean((2, 3)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_layer_behind_every_normalisation(kind, norm):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        module = OfAKind(kind, norm)
        for name, parameter in module.named_parameters():
            if name.startswith("norm"):  # not all alike
                parameter.data.uniform_(0.5, 1.5)
    inputs, labels = images(), torch.arange(6) % NUM_CLASSES
    axes = derive_axes(module, inputs)
    assert axes.num_units >= 4
    gates = torch.ones(axes.num_units, requires_grad=True)
    (expected,) = torch.autograd.grad(loss_under(module, axes, split(axes, gates), inputs, labels), gates)
    assert int((expected.abs() > 1e-7).sum()) > 0.6 * axes.num_units
    torch.testing.assert_close(by_weights(module, axes, inputs, labels), expected, rtol=1e-4, atol=1e-6)


class Mean(nn.Module):
    """Over all positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)


IN_A_ROW = {
    "one dimension": lambda: [
        nn.Flatten(2),
        nn.Conv1d(1, 8, 3),
        nn.Tanh(),
        nn.Conv1d(8, 6, 3),
        nn.ConvTranspose1d(6, 6, 2),
    ],
    "three dimensions": lambda: [
        nn.Unflatten(2, (2, 4)),
        nn.Conv3d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.Conv3d(8, 6, 1),
        nn.ConvTranspose3d(6, 6, 2),
    ],
    "transposed in groups": lambda: [
        nn.Conv2d(1, 8, 3),
        nn.PReLU(8),
        nn.ConvTranspose2d(8, 12, 2, groups=4),
        nn.Conv2d(12, 6, 1),
    ],
    "normalised over all": lambda: [nn.Conv2d(1, 6, 3), nn.LayerNorm([6, 6, 6]), nn.PReLU(6), nn.Conv2d(6, 6, 1)],
}


@pytest.mark.parametrize("name", IN_A_ROW)
def test_convolutions_of_any_dimension(name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Sequential(*IN_A_ROW[name](), Mean(), nn.Linear(6, NUM_CLASSES))
    inputs, labels = images(), torch.arange(6) % NUM_CLASSES
    axes = derive_axes(module, inputs)
    gates = torch.ones(axes.num_units, requires_grad=True)
    (expected,) = torch.autograd.grad(loss_under(module, axes, split(axes, gates), inputs, labels), gates)
    assert len(expected) >= 10
    assert float(expected.abs().min()) > 1e-6
    torch.testing.assert_close(by_weights(module, axes, inputs, labels), expected, rtol=1e-4, atol=1e-7)


HOOKED = [name for name in ZOO if name not in ("lstm", "transformer")]
MORE = ["gated", "batch", "group", "layer"]


def case(name: str):
    if name in MORE:
        return _more(name)
    example = zoo(name)
    return example.module, example.axes(), example.example_inputs


def split(axes: Axes, flat: Tensor) -> dict[str, Tensor]:
    return dict(zip(axes.sizes, flat.split(list(axes.sizes.values())), strict=True))


@pytest.mark.parametrize("name", [*HOOKED, *MORE])
def test_the_sum_over_weights_is_the_derivative_of_a_gate(name):
    module, axes, inputs = case(name)
    labels = torch.arange(len(inputs)) % NUM_CLASSES
    gates = torch.ones(axes.num_units, requires_grad=True)
    (expected,) = torch.autograd.grad(loss_under(module, axes, split(axes, gates), inputs, labels), gates)
    got = by_weights(module, axes, inputs, labels)
    assert float(expected.abs().max()) > 1e-4
    assert int((expected != 0).sum()) > 0.4 * axes.num_units  # the others are dead
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn_batch", "cnn_group", "resnet8_batch", "depthwise", "concat"])
def test_a_gate_of_zero_is_the_slice_without_the_channel(name):
    """So it stands where the channel is read, wherever that is."""
    module, axes, inputs = case(name)
    module.eval()
    labels = torch.arange(len(inputs)) % NUM_CLASSES
    for axis, size in axes.sizes.items():
        gates = {a: torch.ones(n) for a, n in axes.sizes.items()}
        gates[axis][1] = 0.0
        kept = {axis: torch.tensor([c for c in range(size) if c != 1])}
        small = resize_module(module, axes, {axis: size - 1})
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for own, tensor in (*small.named_parameters(), *small.named_buffers()):
            cut = tensors[own].detach()
            for i, dim in enumerate(axes.dims[own]):
                cut = cut.index_select(i, axes.positions(dim, kept))
            tensor.data = cut
        without = cross_entropy(small(inputs), labels)
        torch.testing.assert_close(loss_under(module, axes, gates, inputs, labels), without, rtol=1e-4, atol=1e-6)


class Attention(nn.Module):
    """torch's own attention in a residual stream, with or without a key and a value of its own."""

    def __init__(self, added: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=added)
        self.classifier = nn.Linear(8, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        return self.classifier((x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


def attention_by_hand(module: Attention, gates: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Each head keeps the same positions: gates at the projections, in the product of queries and keys, at the end."""
    (gate,) = gates.values()
    along, own = gate.repeat(2), module.attention
    x = module.embed(ids)
    q, k, v = linear(x * along, own.in_proj_weight, own.in_proj_bias).chunk(3, -1)
    if own.bias_k is not None:
        k, v = (torch.cat([t, more.expand(len(t), -1, -1)], 1) for t, more in ((k, own.bias_k), (v, own.bias_v)))
    q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in (q * along, k, v))
    mixed = ((q @ k.transpose(2, 3) / 2).softmax(-1) @ v).transpose(1, 2).flatten(2)
    return module.classifier((x + own.out_proj(mixed * along)).mean(1) * along)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.layer = kind(8, 6, batch_first=True)
        self.classifier = nn.Linear(6, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier(self.layer(self.embed(ids))[0][:, -1])


def recurrent_axes(module: Recurrent) -> Axes:
    rows = Part("hidden", before=4 if isinstance(module.layer, nn.LSTM) else 3)
    dims = {"embed.weight": (None, "embed"), "classifier.weight": (None, "hidden")}
    dims |= {"layer.weight_ih_l0": (rows, "embed"), "layer.weight_hh_l0": (rows, "hidden")}
    dims |= {"layer.bias_ih_l0": (rows,), "layer.bias_hh_l0": (rows,)}
    return axes_table(module, {"embed": 8, "hidden": 6}, dims)


def recurrent_by_hand(module: Recurrent, gates: dict[str, Tensor], ids: Tensor) -> Tensor:
    layer, x = module.layer, module.embed(ids) * gates["embed"]
    h = c = torch.zeros(len(ids), 6)
    for t in range(ids.shape[1]):
        a = linear(x[:, t], layer.weight_ih_l0, layer.bias_ih_l0)
        b = linear(h * gates["hidden"], layer.weight_hh_l0, layer.bias_hh_l0)
        if isinstance(layer, nn.LSTM):
            i, f, g, o = (a + b).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        else:
            (ra, za, na), (rb, zb, nb) = a.chunk(3, 1), b.chunk(3, 1)
            z = (za + zb).sigmoid()
            h = (1 - z) * (na + (ra + rb).sigmoid() * nb).tanh() + z * h
    return module.classifier(h * gates["hidden"])


@pytest.mark.parametrize("kind", ["attention", "attention with bias_k", nn.LSTM, nn.GRU])
def test_the_same_where_the_layer_has_several_readings(kind):
    attends = isinstance(kind, str)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = Attention(kind != "attention") if attends else Recurrent(kind)
    ids = tokens()
    axes = derive_axes(module, ids) if attends else recurrent_axes(module)
    by_hand = attention_by_hand if attends else recurrent_by_hand
    labels = torch.arange(len(ids)) % NUM_CLASSES
    gates = torch.ones(axes.num_units, requires_grad=True)
    logits = by_hand(module, split(axes, gates), ids)
    torch.testing.assert_close(logits, module(ids))
    (expected,) = torch.autograd.grad(cross_entropy(logits, labels), gates)
    assert bool((expected.abs() > 1e-6).all())
    torch.testing.assert_close(by_weights(module, axes, ids, labels), expected, rtol=1e-4, atol=1e-6)


def test_frozen_weights_tell_nothing():
    """The trained readers count, and where there is none the rows that give the channel out."""
    module = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 5, bias=False), nn.Linear(5, 2, bias=False))
    axes = axes_table(
        module, {"a": 4, "b": 5}, {"0.weight": ("a", None), "1.weight": ("b", "a"), "2.weight": (None, "b")}
    )
    module[1].weight.requires_grad_(False)
    assert [(reader.tensor, reader.dim) for reader in readers(module, axes)] == [("2.weight", 1), ("0.weight", 0)]
    module[2].weight.requires_grad_(False)
    assert [(reader.tensor, reader.dim) for reader in readers(module, axes)] == [("0.weight", 0)]


def test_queries_and_keys_alone_are_gated_where_queries_come_out():
    """No weight reads their product; values and the rest are not cut."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = Gated()
    axes = axes_table(
        module,
        {"qk": 8},
        {f"{n}.{p}": ("qk", None)[: 2 - (p == "bias")] for n in ("query", "key") for p in ("weight", "bias")},
    )
    ids, labels = tokens(), torch.arange(6) % NUM_CLASSES
    gates = torch.ones(8, requires_grad=True)
    handle = module.query.register_forward_hook(lambda layer, args, out: out * gates)
    (expected,) = torch.autograd.grad(cross_entropy(module(ids), labels), gates)
    handle.remove()
    torch.testing.assert_close(by_weights(module, axes, ids, labels), expected, rtol=1e-4, atol=1e-6)


class Sideways(nn.Module):
    """A linear layer whose weight is inputs x outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def test_a_layer_whose_weight_has_its_inputs_first_reads_those():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), Sideways(), nn.Tanh(), nn.Linear(6, NUM_CLASSES)
        )
    inputs, labels = images(), torch.arange(6) % NUM_CLASSES
    axes = derive_axes(module, inputs)
    assert axes.sizes == {"1": 8, "3": 6}
    gates = torch.ones(14, requires_grad=True)
    first, second = gates.split([8, 6])
    hidden = module[2](module[1](inputs.flatten(1))) * first
    loss = cross_entropy(module[5](module[4](module[3](hidden)) * second), labels)
    (expected,) = torch.autograd.grad(loss, gates)
    torch.testing.assert_close(by_weights(module, axes, inputs, labels), expected, rtol=1e-4, atol=1e-6)


class Own(nn.Module):
    """A linear layer of the user's."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.randn(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Experts(nn.Module):
    """The sum of three linear layers, whose weights are experts x inputs x outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 8, 6)), nn.Parameter(torch.randn(3, 1, 6))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.bmm(x.expand(3, *x.shape), self.weight) + self.bias).tanh().sum(0)


class Gate(nn.Module):
    """Ones, one a channel."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class AllInOne(nn.Module):
    """Two layers whose weights are parameters of one module."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(8, 64)), nn.Parameter(torch.randn(8))
        self.w2, self.gate = nn.Parameter(torch.randn(NUM_CLASSES, 8)), Gate(8)

    def forward(self, x: Tensor) -> Tensor:
        return linear(self.gate(linear(x, self.w1, self.b1).relu()), self.w2)


def chain(*layers: nn.Module) -> list[nn.Module]:
    """64 inputs, 8 normalised channels and 6 of the first layer, a gate before each layer; the last gives classes."""
    first = [nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Tanh(), Gate(8), layers[0]]
    return [*first, nn.BatchNorm1d(6), nn.Tanh(), Gate(6), layers[1]]


OWN = {
    "own": lambda: chain(Own(8, 6, True), Own(6, NUM_CLASSES, True)),
    "own without biases": lambda: chain(Own(8, 6, False), Own(6, NUM_CLASSES, False)),
    "weight_norm": lambda: chain(nn.Linear(8, 6), weight_norm(nn.Linear(6, NUM_CLASSES), dim=1)),
    "experts": lambda: chain(Experts(), nn.Linear(6, NUM_CLASSES)),
    "all in one": lambda: [AllInOne()],
}


@pytest.mark.parametrize("name", OWN)
def test_layers_of_the_users_and_parametrized_ones_read_their_inputs(name):
    """Also a classifier, which gives no channel out, behind a normalisation: there the sum over rows is 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = nn.Sequential(nn.Flatten(), *OWN[name]())
    inputs, labels = images(), torch.arange(6) % NUM_CLASSES
    axes = derive_axes(module, inputs)
    gates = {n: layer.weight for n, layer in module.named_modules() if isinstance(layer, Gate)}
    expected = torch.autograd.grad(cross_entropy(module(inputs), labels), list(gates.values()))
    got = split(axes, by_weights(module, axes, inputs, labels))
    assert float(torch.cat(expected).abs().min()) > 1e-5 or name == "all in one"  # some of its units are dead
    for gate, derivative in zip(gates, expected, strict=True):
        ((part,),) = axes.dims[f"{gate}.weight"]
        torch.testing.assert_close(got[part.axis], derivative, rtol=1e-4, atol=1e-5)
