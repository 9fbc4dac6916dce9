"""What reading and writing positions by number leaves to be cut."""

import pytest
import torch
from between import Between
from torch import nn

from fedfibos.channels.derive import derive_axes

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
TO = torch.tensor([0, 0, 1, 2, 2])


def _scattered(h, how):
    into = torch.zeros(5, h.shape[1])
    along = TO[:, None].expand(-1, h.shape[1])
    if how == "reduce":
        return into.scatter_reduce(0, along, h, "amax", include_self=False)
    if how == "index reduce":
        return into.index_reduce(0, TO, h, "mean", include_self=False)
    return into.index_copy(0, torch.arange(5), h) if how == "copy" else into.index_add_(0, TO, h * 1)


@pytest.mark.parametrize("how", ["add", "copy", "index reduce", "reduce"])
def test_examples_are_gathered_by_number_and_channels_are_cut(how):
    axes = derive_axes(Between(lambda h: _scattered(h, how)), X)
    assert axes.sizes == {"first": 6}
    assert axes.whole == {}


def test_channels_that_are_written_by_number_stay_whole():
    def into(h):
        return torch.zeros_like(h).index_add(1, torch.tensor([1, 0, 2, 4, 3, 5]), h)

    axes = derive_axes(Between(into), X)
    assert axes.whole == {"first": "the model itself writes to them by number (index_add)"}


class Routed(nn.Module):
    """The loop over experts of a mixture: rows are picked, and added where they were."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.up, self.down = nn.Parameter(torch.randn(3, 8, 6)), nn.Parameter(torch.randn(3, 6, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        weight, chosen = self.gate(h).softmax(-1).topk(2, -1)
        out = torch.zeros_like(h)
        for expert in range(3):
            row, place = torch.where(chosen == expert)
            given = (h[row] @ self.up[expert]).relu() @ self.down[expert]
            out.index_add_(0, row, given * weight[row, place, None])
        return self.last(h + out)


def test_what_experts_read_and_give_is_cut():
    assert derive_axes(Routed(), X).sizes == {"down": 6, "first": 8}
