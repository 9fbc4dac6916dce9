"""Ways of writing attention, gates and blocks, with sizes in the code: derived, and a slice runs on any batch."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfibos.channels.derive import derive_axes
from fedfibos.channels.resize import resize_module
from zoo import NUM_CLASSES, VOCABULARY, images, tokens


class Attention(nn.Module):
    """24 channels, 4 heads of 6, of keys and values perhaps 2 or 1."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.heads, self.size, self.width = kind, 4, 6, 24
        self.embed, self.norm, self.out = nn.Embedding(VOCABULARY, 24), nn.LayerNorm(24), nn.Linear(24, 24)
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 12), nn.Linear(24, 12)
        self.qkv = nn.Linear(24, 36 if kind == "one key" else 72)
        self.classifier = nn.Linear(24, NUM_CLASSES)

    def grouped(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, _ = y.shape
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (f(y).view(batch, length, 2, self.size).transpose(1, 2) for f in (self.k, self.v))
        if self.kind == "complex rotary":
            angles = torch.arange(length)[:, None] * torch.ones(self.size // 2)
            turn = torch.polar(torch.ones_like(angles), angles)
            q, k = (
                torch.view_as_real(torch.view_as_complex(t.reshape(*t.shape[:-1], -1, 2)) * turn).flatten(3)
                for t in (q, k)
            )
        if self.kind == "expand":
            k, v = (
                t[:, :, None].expand(batch, 2, 2, length, self.size).reshape(batch, self.heads, length, self.size)
                for t in (k, v)
            )
            return q, k, v
        return q, k.repeat_interleave(2, 1), v.repeat_interleave(2, dim=1)

    def packed(self, y: Tensor) -> tuple[Tensor, ...]:
        batch, length, width = y.shape
        x, sizes = self.qkv(y), (batch, length, self.heads, self.size)
        if self.kind == "split":
            return tuple(t.view(sizes).transpose(1, 2) for t in x.split(self.width, dim=2))
        if self.kind == "chunk":
            return tuple(t.view(*sizes).transpose(1, 2) for t in x.chunk(3, -1))
        if self.kind == "slices":
            pieces = x[..., :width], x[..., width : 2 * width], x[..., 2 * width :]
            return tuple(t.reshape(batch, length, self.heads, -1).permute(0, 2, 1, 3) for t in pieces)
        if self.kind == "heads first":
            return x.view(batch, length, self.heads, 3 * self.size).transpose(1, 2).chunk(3, -1)
        if self.kind == "one key":
            q, k, v = x.split([self.width, self.size, self.size], -1)
            return q.view(sizes).transpose(1, 2), k[:, None], v[:, None]
        return x.reshape(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        batch, length, width = x.shape
        of = self.grouped if self.kind in ("interleave", "expand", "complex rotary") else self.packed
        q, k, v = of(self.norm(x))
        mixed = (q @ k.transpose(-2, -1) * self.size**-0.5).softmax(-1) @ v
        mixed = mixed.transpose(1, 2).reshape(batch, length, width if self.kind == "timm" else self.width)
        return self.classifier((x + self.out(mixed)).mean(1))


def runs_on_any_batch(module: nn.Module, inputs: Tensor) -> dict[str, int]:
    """The axes; a slice of half the width gives each example the same scores in every batch."""
    axes = derive_axes(module, inputs)
    for ratio in (0.5, 0.01):
        small = resize_module(module, axes, axes.widths(ratio)).eval()
        for _ in range(12):  # Python's own instructions change as code is run again
            torch.testing.assert_close(small(inputs)[:2], small(inputs[:2]), rtol=1e-3, atol=1e-4)
        if not inputs.is_floating_point():
            assert small(inputs[:3, :5]).shape == (3, NUM_CLASSES)
    return dict(axes.sizes)


KINDS = ["split", "chunk", "slices", "heads first", "one key", "timm"]


@pytest.mark.parametrize("kind", [*KINDS, "interleave", "expand", "complex rotary"])
def test_attention_is_cut_in_heads_however_it_is_written(kind):
    heads = {"q": 2} if kind in ("interleave", "expand", "complex rotary") else {"qkv": 4}
    assert runs_on_any_batch(Attention(kind), tokens()) == {"embed": 24, **heads}


class Steps(nn.Module):
    """A recurrent cell called step by step, or its gates by hand; what others call self has another name."""

    def __init__(self, cell: nn.Module | None) -> None:
        super().__init__()
        self.embed, self.cell, self.hidden = nn.Embedding(VOCABULARY, 8), cell, 12
        if cell is None:
            self.inputs, self.states = nn.Linear(8, 36), nn.Linear(12, 36, bias=False)
        self.classifier = nn.Linear(12, NUM_CLASSES)

    def forward(net, ids: Tensor) -> Tensor:
        x = net.embed(ids)
        h, c = torch.zeros(len(ids), net.hidden), x.new_zeros(x.shape[0], net.hidden)
        for t in range(ids.shape[1]):
            if isinstance(net.cell, nn.LSTMCell):
                h, c = net.cell(x[:, t], (h, c))
            elif net.cell is not None:
                h = net.cell(x[:, t], h)
            else:
                (r, z, n), (a, b, m) = net.inputs(x[:, t]).chunk(3, 1), net.states(h).chunk(3, 1)
                z = (z + b).sigmoid()
                h = (1 - z) * (n + (r + a).sigmoid() * m).tanh() + z * h
        return net.classifier(h)


@pytest.mark.parametrize(("cell", "name"), [(nn.LSTMCell, "cell"), (nn.GRUCell, "cell"), (None, "inputs")])
def test_gates_are_cut_alike_and_first_states_have_the_size_of_the_slice(cell, name):
    assert runs_on_any_batch(Steps(cell and cell(8, 12)), tokens()) == {"embed": 8, name: 12}


class Block(nn.Module):
    """16 channels, a function of them and a second convolution, mean, classifier."""

    def __init__(self, function: object, wide: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, wide, 1)
        self.gain, self.shift = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
        self.function, self.classifier = function, nn.Linear(16, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.function(self, self.first(x))
        return self.classifier(F.relu(x).mean((2, 3)))


def _glu(net: Block, x: Tensor) -> Tensor:
    return F.glu(net.second(x), dim=1)


def _layer_norm(net: Block, x: Tensor) -> Tensor:
    return F.layer_norm(x.permute(0, 2, 3, 1), (16,), net.gain, net.shift).permute(0, 3, 1, 2)


def _group_norm(net: Block, x: Tensor) -> Tensor:
    return F.group_norm(x, 8, net.gain, net.shift)


def _halves(net: Block, x: Tensor) -> Tensor:
    return torch.cat([x[:, :8], net.second(x)[:, 8:]], 1)


def _in_place(net: Block, x: Tensor) -> Tensor:
    x = x.clone()
    x[:, :8] += x[:, 8:]
    return x


def _excite(net: Block, x: Tensor) -> Tensor:
    y = x.mean((2, 3)).view(-1, 16) * net.gain
    return x * y.sigmoid().view(-1, 16, 1, 1).expand_as(x)


def _pad(net: Block, x: Tensor) -> Tensor:
    return F.pad(x[:, :12], (0, 0, 0, 0, 2, 2)) + net.second(x)


def _split(net: Block, x: Tensor) -> Tensor:
    few, many = torch.split(x, [4, 12], 1)
    return torch.cat((many, few), 1)


def _swish(net: Block, x: Tensor) -> Tensor:
    return F.hardswish(net.second(x))


@pytest.mark.parametrize(
    ("function", "wide", "sizes"),
    [
        (_glu, 32, {"first": 16, "second": 16}),
        (_layer_norm, 16, {"first": 16}),
        (_group_norm, 16, {"first": 8}),
        (_halves, 16, {"first": 8, "first[1]": 8, "second": 8, "second[1]": 8}),
        (_in_place, 16, {"first": 8}),
        (_excite, 16, {"first": 16}),
        (_pad, 16, {"first": 12, "first[1]": 4, "second": 2, "second[2]": 2}),
        (_split, 16, {"first": 4, "first[1]": 12}),
        (_swish, 16, {"first": 16, "second": 16}),
    ],
)
def test_blocks_are_cut_where_their_code_names_sizes(function, wide, sizes):
    assert runs_on_any_batch(Block(function, wide), images()) == sizes
