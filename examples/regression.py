"""Regression on scikit-learn's diabetes data: a year's progression of 442 patients from ten measurements each."""

from pathlib import Path

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

from fedfibos import Split, TensorData


def diabetes(folder: Path | None) -> Split:
    """Measurements and targets with mean 0 and deviation 1 over the training patients; no classes."""
    bunch = load_diabetes()
    inputs, targets = torch.tensor(bunch.data).float(), torch.tensor(bunch.target).float()
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    train, test = order[:342], order[342:]
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    targets = (targets - targets[train].mean()) / targets[train].std()
    return Split(TensorData(inputs[train], targets[train]), TensorData(inputs[test], targets[test]))


class Net(nn.Module):
    """Two hidden layers; ``num_classes`` is how many numbers an example has, here one."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...], width: int = 32) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(input_shape[0], width), nn.Linear(width, width)
        self.last = nn.Linear(width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Predicted numbers, shape ``(batch, num_classes)``."""
        values: Tensor = self.last(self.second(self.first(inputs).relu()).relu())
        return values
