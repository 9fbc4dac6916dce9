"""Axes and slices along them: sets of coordinates, nested prefixes, widths, tables that cannot be."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from windows import windows

from fedfibos.channels.axes import Axes, axes_table
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.params import layout_of
from fedfibos.submodel import Slice
from zoo import LSTMClassifier, lstm_axes


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_index_is_a_set_of_coordinates_and_gather_inverts_scatter(case, data):
    _, axes, layout = case
    channels = {}
    for axis, size in axes.sizes.items():
        order = data.draw(st.permutations(range(size)), label=axis)
        channels[axis] = torch.tensor(order[: data.draw(st.integers(1, size))])
    submodel = axes.slice(layout, channels)
    kept = submodel.index
    assert kept.numel() == submodel.layout.size == kept.unique().numel()
    assert 0 <= int(kept.min()) <= int(kept.max()) < layout.size
    local = torch.randn(kept.numel(), generator=torch.Generator().manual_seed(0))
    total = torch.zeros(layout.size)
    submodel.add_to(total, local, 1.0)
    assert torch.equal(submodel.gather(total), local)
    assert int((total != 0).sum()) == kept.numel()
    num_maskable = submodel.layout.num_maskable
    assert int((kept < layout.num_maskable).sum()) == num_maskable
    assert bool((kept[:num_maskable] < layout.num_maskable).all())


def test_prefixes_are_nested_and_the_whole_is_everything(case):
    _, axes, layout = case
    sets = [set(axes.index(layout, windows(axes, ratio))[0].tolist()) for ratio in (0.1, 0.25, 0.5, 1.0)]
    assert sets[0] <= sets[1] <= sets[2] <= sets[3]
    assert sets[3] == set(range(layout.size))
    assert axes.index(layout, {})[0].tolist() == list(range(layout.size))


def test_resnet18_index_sets_take_under_50_milliseconds(resnet18):
    seconds = []
    for start in range(5):
        channels = windows(resnet18.axes, 0.7, start)
        begin = time.thread_time()  # of this thread alone: the machine may be busy
        submodel = resnet18.axes.slice(resnet18.layout, channels)
        seconds.append(time.thread_time() - begin)
    assert submodel.num_held > 5_000_000
    assert min(seconds) < 0.05


def test_prefix_slice_is_the_first_channels_of_every_axis(resnet18):
    submodel = prefix(resnet18, 0.25)
    assert isinstance(submodel, Slice)
    assert dict(submodel.widths)["conv1"] == 32
    assert submodel.index[: 32 * 27].tolist() == list(range(32 * 27))
    with pytest.raises(ValueError, match="needs an example batch or a table of axes"):
        prefix(model_of(nn.Linear(2, 2)), 0.5)


def test_widths_round_up():
    axes = Axes({"a": 10, "b": 3}, {})
    assert axes.widths(0.3) == {"a": 3, "b": 1}
    assert axes.widths(0.01) == {"a": 1, "b": 1}
    for ratio in (0.0, 1.5):
        with pytest.raises(ValueError, match=r"width must be in \(0, 1\]"):
            axes.widths(ratio)


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ({"hiden": [0]}, "unknown axis 'hiden'; did you mean 'hidden'?"),
        ({"hidden": [0, 0]}, "channels of axis 'hidden' must not repeat, got [0, 0]"),
        ({"hidden": [12]}, "channels of axis 'hidden' must be in [0, 12), got [12]"),
        ({"hidden": [-1]}, "channels of axis 'hidden' must be in [0, 12), got [-1]"),
    ],
)
def test_bad_channels(channels, message):
    module = LSTMClassifier()
    kept = {axis: torch.tensor(values) for axis, values in channels.items()}
    with pytest.raises(ValueError) as error:  # noqa: PT011  the whole message is compared
        lstm_axes(module).index(layout_of(module), kept)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"wieght": (None, "in")}, "the model has no tensor 'wieght'; did you mean 'weight'?"),
        ({"weight": ("in",)}, "tensor 'weight' of shape (2, 4) needs 2 entries, got ('in',)"),
        ({"weight": (None, "inn")}, "unknown axis 'inn' of tensor 'weight'; did you mean 'in'?"),
        ({"weight": ("in", None)}, "the parts of tensor 'weight' add up to shape (4, 4), it is (2, 4)"),
    ],
)
def test_bad_tables(dims, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011  the whole message is compared
        axes_table(nn.Linear(4, 2), {"in": 4}, dims)
    assert str(error.value) == message
