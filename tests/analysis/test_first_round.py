"""A client's first round, of a model with values and of one without."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos.analysis.first_round import NeedsValuesError, first_round, made_up
from fedfibos.common.unallocated import without_weights
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.params import Layout
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from fedfibos.wire.model_outline import outline_of

CLIENT = Client(0, 0.5, 0, 0, LocalTraining())


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


MODEL = model_of(net(), example=torch.zeros(2, 3))


def without_values():
    with without_weights():
        module = net()
    return outline_of(MODEL).model(module, torch.zeros(2, 3))


def test_with_values_it_is_the_methods_own_submodel():
    params, submodel = first_round(METHODS["fedfibos"](), MODEL, CLIENT)
    assert torch.equal(params.flat, MODEL.initial_params().flat)
    assert submodel.num_held == MODEL.layout.num_maskable // 2


def test_without_values_a_slice_is_as_its_client_sees_it():
    params, submodel = first_round(METHODS["heterofl"](), without_values(), CLIENT)
    _, expected = first_round(METHODS["heterofl"](), MODEL, CLIENT)
    assert submodel.widths == expected.widths == (("0", 1),)
    assert params.layout.shapes == ((1, 3), (1,), (2, 1), (2,))


def test_a_ranking_needs_values():
    with pytest.raises(NeedsValuesError, match="the method needs the model's values: "):
        first_round(METHODS["fedfibos"](), without_values(), replace(CLIENT))


def test_made_up_values_let_signals_pass():
    """Vectors are ones; a matrix of 10,000 inputs has variance 1/10,000."""
    params = made_up(Layout(("weight", "bias"), ((4, 10_000), (4,)), 2))
    assert params.flat[-4:].tolist() == [1.0] * 4
    assert float(params.flat[:-4].std()) == pytest.approx(0.01, rel=0.02)
