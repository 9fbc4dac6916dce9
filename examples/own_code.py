"""A model and a data set of your own, for ``fedfibos run examples/own_code.toml``: two functions, named in the file."""

from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

from fedfibos import Split, TensorData


def tumours(folder: Path | None) -> Split:
    """Called with the data folder, or None. Here scikit-learn brings the data: 569 tumours, 30 measurements each."""
    bunch = load_breast_cancer()
    inputs, labels = torch.tensor(bunch.data).float(), torch.tensor(bunch.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:450], order[450:]
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    return Split(
        TensorData(inputs[train], labels[train]),
        TensorData(inputs[test], labels[test]),
        classes=tuple(bunch.target_names),
        # owners=..., one number a training example, and data.partition.scheme = "natural": clients are real ones
    )


class Gated(nn.Module):
    """Called with ``num_classes``, ``input_shape``, and what ``model.options`` gives."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__()
        self.value = nn.Linear(input_shape[0], width)
        self.gate = nn.Linear(input_shape[0], width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, shape ``(batch, num_classes)``."""
        logits: Tensor = self.classifier(self.value(inputs) * self.gate(inputs).sigmoid())
        return logits
