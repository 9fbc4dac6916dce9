"""Which axes narrower copies fail by."""

import torch
from torch import Tensor, nn

from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.check import probe_of
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.narrowing import Failure, Proof, failures

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


class Compares(nn.Module):
    """Two layers side by side: both, or neither, must be narrow, as the code says."""

    def __init__(self, both: bool) -> None:
        super().__init__()
        self.both, self.a, self.b, self.last = both, nn.Linear(4, 6), nn.Linear(4, 8), nn.Linear(14, 3)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a(x), self.b(x)
        if (a.shape[1] < 6 and b.shape[1] < 8) if self.both else a.shape[1] < 6:
            raise RuntimeError("too narrow")
        return self.last(torch.cat([a, b], 1))


def proof_of(module: nn.Module) -> tuple[Proof, Axes]:
    dims = {
        "a.weight": ("a", None),
        "a.bias": ("a",),
        "b.weight": ("b", None),
        "b.bias": ("b",),
        "last.weight": (None, (Part("a"), Part("b"))),
    }
    axes = axes_table(module, {"a": 6, "b": 8}, dims)
    probe, expected = probe_of(module, X)
    return Proof(probe, X, expected), axes


def test_an_axis_that_fails_alone_is_named():
    assert failures(*proof_of(Compares(both=False))) == (
        {"a": Failure("RuntimeError: too narrow", {"a": 3}, False)},
        False,
    )


def test_where_only_two_together_fail_the_later_one_is_named():
    found, _ = failures(*proof_of(Compares(both=True)))
    assert found == {"b": Failure("RuntimeError: too narrow", {"a": 3, "b": 4}, False)}


def test_the_other_axis_is_cut_all_the_same():
    axes = derive_axes(Compares(both=True), X)
    assert axes.sizes == {"a": 6}
    assert axes.whole == {"b": "a narrower copy does not run (RuntimeError: too narrow)"}


def test_a_table_that_holds():
    module = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    axes = derive_axes(module, X)
    probe, expected = probe_of(module, X)
    assert failures(Proof(probe, X, expected), axes) == ({}, False)
