"""Channels that can't be left out one by one go in units."""

import pytest
from torch import Tensor, nn

from fedfibos.channels.axes import Axes, Part
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.factors import fresh
from fedfibos.channels.resize import resize_module
from fedfibos.channels.units import in_units, keep_units
from zoo import NUM_CLASSES, VOCABULARY, tokens


class Scaled(nn.Module):
    """Attention as many write it: the size of a head is worked out from the width of what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.embed = 4, nn.Embedding(VOCABULARY, 24)
        self.qkv, self.proj, self.classifier = nn.Linear(24, 72), nn.Linear(24, 24), nn.Linear(24, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        batch, length, width = x.shape
        size = width // self.heads
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, size).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = (q @ k.transpose(-2, -1) * size**-0.5).softmax(-1) @ v  # of fewer channels than heads: 0 ** -0.5
        return self.classifier((x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))).mean(1))


def test_an_embedding_keeps_as_many_channels_as_its_code_needs():
    module = Scaled()
    axes = derive_axes(module, tokens())
    assert axes.sizes == {"embed": 6, "qkv": 4}
    assert axes.dims["embed.weight"][1] == (Part("embed", 1, 4),)
    assert axes.whole == {}
    assert resize_module(module, axes, {"embed": 1, "qkv": 1})(tokens()).shape == (6, NUM_CLASSES)


def test_the_smallest_units_that_work_are_taken():
    axes, (factor,) = Axes({"a": 12}, {"w": ((Part("a"),),)}), fresh(12)
    tried = []

    def works(table: Axes) -> bool:
        tried.append(12 // table.sizes["a"])
        return tried[-1] % 4 == 0

    keep_units(axes, "a", factor, works, "why")
    assert tried == [2, 3, 4]
    assert [(part.size, part.why_whole) for part in factor.product] == [
        (3, None),
        (4, "channels go together in units of 4"),
    ]


@pytest.mark.parametrize(("most", "tried"), [(None, [2, 3, 4, 6]), (2, [2, 3])])
def test_where_no_units_work_channels_stay_whole(most, tried):
    (factor,), seen = fresh(12), []
    keep_units(Axes({"a": 12}, {}), "a", factor, lambda table: bool(seen.append(12 // table.sizes["a"])), "why", most)
    assert seen == tried
    assert factor.why_whole == "why"


def test_a_table_in_units():
    site = ("view", "", ())
    axes = Axes(
        {"a": 6, "b": 2},
        {"w": ((Part("a", 3, 2), Part("b")), (Part(None, 1, 5),))},
        {"norm": (Part("a"),)},
        sites={site: ((((Part("a"),), 0, 6), None),)},
    )
    units = in_units(axes, "a", 3)
    assert units.sizes == {"a": 2, "b": 2}
    assert units.dims == {"w": ((Part("a", 3, 6), Part("b")), (Part(None, 1, 5),))}
    assert units.features == {"norm": (Part("a", 1, 3),)}
    assert units.sites == {site: ((((Part("a", 1, 3),), 0, 6), None),)}
