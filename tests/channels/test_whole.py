"""Layers that are named, or can't be cut, stay whole; their share is of the parameters that capacities count."""

from torch import nn

from fedfibos.channels.derive import derive_axes
from fedfibos.channels.whole import whole_share
from fedfibos.params import layout_of
from zoo import images


def test_the_share_counts_tensors_no_dimension_of_which_is_cut():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    axes = derive_axes(module, images(), whole=["1"])
    assert axes.sizes == {"3": 8}
    assert axes.whole == {"1": "model.whole names it"}
    assert whole_share(axes, layout_of(module)) == (12 * 64 + 12 + 3) / (12 * 65 + 8 * 13 + 3 * 9)
