"""What selections look like, by hand."""

import pytest
import torch
from torch import nn

from fedfibos.analysis.selections import Diagnostics, dead_layers
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.params import Params
from fedfibos.submodel import Mask
from fedfibos.training import LocalTraining
from fedfibos.types import Client

MODEL = model_of(nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)))
PARAMS = Params(MODEL.layout, torch.tensor([1.0, -4.0, 3.0, 2.0]))


def mask(*held):
    return Mask(torch.tensor(held, dtype=torch.bool), sum(held))


def test_similarity_shares_and_dispersion():
    """By magnitude the best two are the second and third. Of first and second a third is shared.

    |x| are 1, 4, 3, 2: mean 2.5, variance 1.25.
    """
    method = METHODS["fedavg"]()
    found = Diagnostics(method, method.init(PARAMS), PARAMS)
    for number, held in enumerate([(1, 1, 0, 0), (0, 1, 1, 0)]):
        found.add(Client(number, 0.5, 0, 0, LocalTraining()), mask(*held), of_the_fleet=True)
    result = found.result()
    assert result["jaccard"] == {"0.5": pytest.approx((1 / 3 + 1) / 2)}
    assert result["shares"] == {"0.5": 0.5}
    assert result["kept_shares"] == {"0.5": {"0.weight": 1.0, "1.weight": 0.0}}
    assert result["cv_f"] is None
    assert result["cv_magnitude"] == pytest.approx(1.25**0.5 / 2.5)


def test_a_layer_without_a_weight_is_dead():
    assert dead_layers(mask(1, 1, 0, 0), MODEL.layout) == ["1.weight"]
    assert dead_layers(mask(1, 0, 1, 0), MODEL.layout) == []
