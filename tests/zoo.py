"""Small models of many kinds, for tests that must hold for any ``nn.Module``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.derive import derive_axes
from fedfibos.common.inputs import Inputs
from fedfibos.models import build

NUM_CLASSES = 5
VOCABULARY = 30


@dataclass(frozen=True)
class Example:
    """A model and a batch it takes; ``table`` is its hand-written table where axes can't be derived."""

    name: str
    module: nn.Module
    example_inputs: Any
    num_classes: int = NUM_CLASSES
    table: Axes | None = None

    def axes(self) -> Axes:
        return self.table or derive_axes(self.module, self.example_inputs)


class Batch:
    """The zoo's example batch as a client's data: a tensor, or named tensors."""

    def __init__(self, inputs: Inputs, labels: torch.Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices, augment=None):
        if isinstance(self.inputs, dict):
            return {name: tensor[indices] for name, tensor in self.inputs.items()}
        return self.inputs[indices]

    def subset(self, indices):
        return Batch(self.batch(indices), self.labels[indices])


def images(batch: int = 6, channels: int = 1, side: int = 8) -> Tensor:
    return torch.randn(batch, channels, side, side, generator=torch.Generator().manual_seed(1))


def tokens(batch: int = 6, length: int = 7) -> Tensor:
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


class TransformerClassifier(nn.Module):
    """Token and position embeddings, torch's own encoder, mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.position = nn.Parameter(0.02 * torch.randn(7, 16))
        layer = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=24, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.classifier = nn.Linear(16, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier(self.encoder(self.embed(ids) + self.position).mean(dim=1))


class DepthwiseCNN(nn.Module):
    """Depthwise-separable convolutions, one with a channel multiplier, and a grouped convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm1 = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 12, 1)
        self.multiplied = nn.Conv2d(12, 24, 3, padding=1, groups=12)
        self.norm2 = nn.BatchNorm2d(24)
        self.grouped = nn.Conv2d(24, 16, 3, stride=2, padding=1, groups=4)
        self.norm3 = nn.BatchNorm2d(16)
        self.classifier = nn.Linear(16, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.depthwise(self.stem(x))).relu()
        x = self.norm2(self.multiplied(self.pointwise(x))).relu()
        return self.classifier(self.norm3(self.grouped(x)).relu().mean(dim=(2, 3)))


class ConcatCNN(nn.Module):
    """Two branches concatenated, normalised together, pooled and flattened into a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.left = nn.Conv2d(8, 6, 1)
        self.right = nn.Conv2d(8, 10, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(4)
        self.hidden = nn.Linear(16 * 2 * 2, 12)
        self.classifier = nn.Linear(12, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = self.norm(torch.cat([self.left(x), self.right(x)], dim=1)).relu()
        return self.classifier(self.hidden(self.pool(x).flatten(1)).relu())


class SharedLayer(nn.Module):
    """One linear layer used three times, in a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 12)
        self.shared = nn.Linear(12, 12)
        self.classifier = nn.Linear(12, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1)).relu()
        for _ in range(3):
            x = x + self.shared(x).relu()
        return self.classifier(x)


class LSTMClassifier(nn.Module):
    """Embedding, LSTM, last hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.classifier = nn.Linear(12, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier(self.lstm(self.embed(ids))[0][:, -1])


class Logits(nn.Module):
    """The class scores of a ``transformers`` model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits


def lstm_axes(module: nn.Module) -> Axes:
    gates = Part("hidden", before=4)
    return axes_table(
        module,
        {"embed": 8, "hidden": 12},
        {
            "embed.weight": (None, "embed"),
            "lstm.weight_ih_l0": (gates, "embed"),
            "lstm.weight_hh_l0": (gates, "hidden"),
            "lstm.bias_ih_l0": (gates,),
            "lstm.bias_hh_l0": (gates,),
            "classifier.weight": (None, "hidden"),
        },
    )


def _lstm() -> Example:
    module = LSTMClassifier()
    return Example("lstm", module, tokens(), table=lstm_axes(module))


def _third_party_resnet() -> Example:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        num_channels=1,
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 2],
        layer_type="basic",
        num_labels=NUM_CLASSES,
    )
    return Example("third_party_resnet", Logits(ResNetForImageClassification(config)), images(side=16))


def _ours(name: str, norm: str | None = None, **options: Any) -> Example:
    module = build(name, NUM_CLASSES, (1, 8, 8), norm=norm, **options)
    return Example("_".join(filter(None, (name, norm))), module, images())


ZOO: dict[str, Callable[[], Example]] = {
    "mlp": lambda: _ours("mlp", hidden=(12, 10)),
    "cnn_none": lambda: _ours("cnn", "none", channels=(8, 16)),
    "cnn_batch": lambda: _ours("cnn", "batch", channels=(8, 16)),
    "lenet": lambda: _ours("lenet", "none", channels=(8, 16), hidden=12),
    "cnn_group": lambda: _ours("cnn", "group", channels=(16, 32)),
    "resnet8_batch": lambda: _ours("resnet8", "batch", channels=(8, 8, 16)),
    "resnet8_group": lambda: _ours("resnet8", "group", channels=(16, 16, 32)),
    "transformer": lambda: Example("transformer", TransformerClassifier(), tokens()),
    "depthwise": lambda: Example("depthwise", DepthwiseCNN(), images()),
    "concat": lambda: Example("concat", ConcatCNN(), images()),
    "shared": lambda: Example("shared", SharedLayer(), images()),
    "lstm": _lstm,
    "third_party_resnet": _third_party_resnet,
}


def zoo(name: str) -> Example:
    """Build one model of the zoo, always with the same initial values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ZOO[name]()
