"""Sizes that a module's code writes follow the slice."""

import copy
import pickle

import torch
from torch import Tensor, nn

from fedfibos.channels.derive import derive_axes
from fedfibos.channels.resize import resize_module
from zoo import images, zoo


class Reshapes(nn.Module):
    """Views its features in a size that it knows by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 12)
        self.classifier = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.first(x.flatten(1)).relu().view(-1, 12))


def test_sizes_that_code_writes_follow_the_slice():
    """``view(-1, 12)`` of 5 channels is a view of 5, in a copy of the slice and when it is pickled too."""
    module = Reshapes()
    axes = derive_axes(module, images())
    assert (axes.sizes, len(axes.sites)) == ({"first": 12}, 1)
    small = resize_module(module, axes, {"first": 5})
    expected = small.classifier(small.first(images().flatten(1)).relu())
    for copied in (small, copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        assert torch.equal(copied(images()), expected)
    assert module(images()).shape == (6, 3)


def test_models_that_write_no_sizes_run_as_they_are():
    axes = zoo("resnet8_group").axes()
    assert axes.sites == {}
    assert "forward" not in vars(resize_module(zoo("resnet8_group").module, axes, axes.widths(0.5)))
