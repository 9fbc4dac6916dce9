"""Models that several tests of channels use."""

import pytest
import torch

from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.params import layout_of
from zoo import ZOO, zoo


@pytest.fixture(scope="module", params=[name for name in ZOO])
def case(request):
    example = zoo(request.param)
    return example, example.axes(), layout_of(example.module)


@pytest.fixture(scope="module")
def resnet18():
    module = build("resnet18", 10, (3, 32, 32), norm="batch")
    return model_of(module, example=torch.zeros(1, 3, 32, 32))
