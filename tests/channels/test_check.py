"""A table of axes is proved by permuting channels and by running narrow copies."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfibos.analysis.cautions import cautions
from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.check import check_axes
from fedfibos.methods.heterofl import HeteroFL
from fedfibos.model import model_of
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from zoo import NUM_CLASSES, LSTMClassifier, lstm_axes, tokens


def test_a_wrong_table_is_caught_by_permuting_channels():
    """Forgetting the recurrent columns, or the bias, is no axis."""
    module = LSTMClassifier()
    good = lstm_axes(module)
    whole = (Part(None, after=12),)
    bad = Axes(good.sizes, {**good.dims, "lstm.weight_hh_l0": (good.dims["lstm.weight_hh_l0"][0], whole)})
    with pytest.raises(ValueError, match="'hidden' is not an axis: permuting its channels changes the logits"):
        check_axes(module, bad, tokens())


def test_a_table_of_the_users_is_checked_where_there_is_an_example():
    """The gates of an LSTM lie one after another: not four rows a channel."""
    module = LSTMClassifier()
    good = lstm_axes(module)
    gates = (Part("hidden", after=4),)
    bad = Axes(good.sizes, {**good.dims, "lstm.bias_ih_l0": (gates,)})
    with pytest.raises(ValueError, match="'hidden' is not an axis: permuting its channels changes the logits"):
        _ = model_of(module, example=tokens(2), axes=bad).axes
    assert model_of(module, example=tokens(2), axes=good).axes is good
    assert model_of(module, axes=bad).axes is bad  # nothing to check it on


class Rooted(nn.Module):
    """Takes the root of a parameter, which has to be positive."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, NUM_CLASSES)
        self.scale = nn.Parameter(torch.ones(1, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu() * self.scale.sqrt())


class Largest(nn.Module):
    """Goes on with the four largest channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(torch.where(x >= x.topk(4).values[:, -1:], x, 0.0))


def hidden_axes(module: nn.Module, **other: Any) -> Axes:
    dims = {"first.weight": ("h", None), "first.bias": ("h",), "last.weight": (None, "h")} | other
    return axes_table(module, sizes={"h": 8}, dims=dims, classes={"last.weight": 0, "last.bias": 0})


def test_a_table_is_checked_on_positive_values_where_random_ones_give_no_numbers():
    module = Rooted()
    good, example = hidden_axes(module, scale=(None, "h")), torch.rand(2, 6)
    assert model_of(module, example=example, axes=good).axes is good
    with pytest.raises(ValueError, match="'h' is not an axis: permuting its channels changes the logits"):
        _ = model_of(module, example=example, axes=hidden_axes(module, scale=(None, None))).axes
    with torch.no_grad():
        module.scale.fill_(-1.0)
    with pytest.raises(ValueError, match="axes cannot be checked: the module's logits are not finite"):
        _ = model_of(module, example=example, axes=good).axes


def test_a_slice_too_narrow_for_the_model_is_one_line_before_the_first_round():
    """A table is not checked on one channel an axis: which widths are in use is the fleet's."""
    module = Largest()
    model = model_of(module, example=torch.rand(2, 6), axes=hidden_axes(module))
    params, method = model.initial_params(), HeteroFL(scaler=False)
    fleet = [Client(n, capacity, 0, 0, LocalTraining()) for n, capacity in enumerate((1.0, 0.6))]
    assert cautions(method, model, method.init(params), params, fleet) == []
    fleet.append(Client(2, 0.25, 0, 0, LocalTraining()))
    with pytest.raises(
        ValueError, match=r"capacity 0\.25: the model fails as a submodel of \d+ parameters: .*RuntimeE"
    ):
        cautions(method, model, method.init(params), params, fleet)
