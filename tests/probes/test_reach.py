"""What a model leaves untrained, and outputs that depend on other examples, are said; what is sound is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedfibos.models import build
from fedfibos.probes.reach import reach_cautions, unreached

EXAMPLE = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Two layers, with a function between them."""

    def __init__(self, between=lambda net, h: h, **kept: object) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(5, 6), nn.Linear(6, 3), between
        for name, value in kept.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(x)).relu())


def in_a_list(net: Net, h: Tensor) -> Tensor:
    return net.layers[0](h)


def under_no_grad(net: Net, h: Tensor) -> Tensor:
    with torch.no_grad():
        return h.clone()


def centred(net: Net, h: Tensor) -> Tensor:
    return h - h.mean(0, keepdim=True)


SAID = {
    "a list of layers": (
        Net(in_a_list, layers=[nn.Linear(6, 6)]),
        "the model computes with a tensor of shape (6, 6) and 1 more that needs a gradient and is no parameter of it",
    ),
    "a plain tensor": (
        Net(lambda net, h: h * net.scale, scale=torch.ones(6, requires_grad=True)),
        "the model computes with a tensor of shape (6,) that needs a gradient and is no parameter of it",
    ),
    "detached": (
        Net(lambda net, h: h.detach()),
        "no gradient reaches parameter 'first.weight' and 1 more from the first batch",
    ),
    "no_grad": (Net(under_no_grad), "no gradient reaches parameter 'first.weight' and 1 more from the first batch"),
    "not used": (Net(extra=nn.Linear(2, 2, bias=False)), "no gradient reaches parameter 'extra.weight' from the first"),
    "a view of a parameter": (
        Net(lambda net, h: net.scale.expand(len(h), -1), scale=nn.Parameter(torch.ones(6))),
        "no gradient reaches parameter 'first.weight' and 1 more from the first batch",
    ),
    "draws in evaluation": (
        Net(lambda net, h: nn.functional.dropout(h, 0.5)),
        "in evaluation the model draws random numbers, so that its outputs are of one draw (dropout without training",
    ),
    "the mean of a batch": (Net(centred), "in evaluation the model's outputs of an example depend on the others"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_user_may_not_know_is_said(name):
    net, start = SAID[name]
    (line,) = reach_cautions(net, EXAMPLE)
    assert line.startswith(start)


def by_chance(net: Net, h: Tensor) -> Tensor:
    return net.extra(h) if not net.training or torch.rand(()) < 0.5 else h


def frozen(net: Net, h: Tensor) -> Tensor:
    return net.extra(h)


def marked(net: Net, h: Tensor) -> Tensor:
    """A tensor of this pass alone, as libraries mark inputs that gradients are to go through."""
    return h + torch.ones(6, requires_grad=True)


SOUND = {
    "made in forward": Net(marked),
    "plain": Net(),
    "batch norm": Net(frozen, extra=nn.BatchNorm1d(6)),
    "around a layer by chance": Net(by_chance, extra=nn.Linear(6, 6)),
    "frozen": Net(frozen, extra=nn.Linear(6, 6).requires_grad_(False)),
    "fails": Net(lambda net, h: h.view(3, 7)),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_is_let_be(name):
    assert reach_cautions(SOUND[name], EXAMPLE) == []


class BiasAlone(Net):
    """Its outputs are a view of a parameter, which the copy's values are then put back into."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last.bias.expand(len(x), -1)


def test_outputs_that_are_a_parameters_own_memory_hide_nothing():
    (line,) = reach_cautions(BiasAlone(), EXAMPLE)
    assert line.startswith("no gradient reaches parameter 'first.weight' and 2 more")


def test_parameters_that_no_gradient_reaches_are_listed():
    assert unreached(Net(extra=nn.Linear(2, 2)), EXAMPLE) == ("extra.weight", "extra.bias")
    assert unreached(Net(), EXAMPLE) == ()
    assert unreached(SOUND["fails"], EXAMPLE) == ()


def test_models_of_ours_are_sound():
    assert reach_cautions(build("resnet8", 4, (1, 8, 8), norm="batch"), torch.rand(2, 1, 8, 8)) == []
