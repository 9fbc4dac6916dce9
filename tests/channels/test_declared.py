"""A module may name its axes, and which channels belong together."""

from torch import nn

from fedfibos.channels.axes import axes_table
from fedfibos.channels.declared import named_axes, named_units


class Named(nn.Linear):
    def channel_axes(self):
        return axes_table(self, {"inner": 4}, {"weight": (None, "inner")})

    def channel_units(self):
        return {"": 2}


def test_what_a_module_says_itself():
    assert named_axes(Named(4, 2)).sizes == {"inner": 4}
    assert named_units(Named(4, 2)) == {"": 2}


def test_a_module_that_says_nothing():
    assert named_axes(nn.Linear(4, 2)) is None
    assert named_units(nn.Linear(4, 2)) == {}
