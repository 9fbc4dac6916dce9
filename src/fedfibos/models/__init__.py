"""The models that ship with the package: plain ``nn.Module`` classes that know nothing of methods."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fedfibos.data.texts import TextData
from fedfibos.models.cnn import CNN
from fedfibos.models.lenet import LeNet
from fedfibos.models.mlp import MLP
from fedfibos.models.resnet import resnet8, resnet18
from fedfibos.models.text import TextClassifier, text_classifier, tokenised
from fedfibos.types import Dataset

MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "cnn": CNN,
    "lenet": LeNet,
    "resnet8": resnet8,
    "resnet18": resnet18,
    "text": text_classifier,
}


def build(
    name: str,
    num_classes: int,
    input_shape: tuple[int, ...],
    norm: str | None = None,
    seed: int = 0,
    **options: Any,
) -> nn.Module:
    """Build a model with reproducible initial values (PyTorch's default initialisation).

    Args:
        name: A key of :data:`MODELS`.
        num_classes: Number of outputs.
        input_shape: Shape of one example, ``(channels, height, width)``; the MLP takes any shape.
        norm: Normalisation layer, ``group``, ``batch`` or (MLP and CNN) ``none``; None is the model's
            own default: ``group``, for the MLP ``none``.
        seed: Seed of the initial values. The global random state is left as it was.
        **options: The model's own options, such as ``hidden`` of the MLP.

    Raises:
        ValueError: Unknown model or option, or a value that the model can't use.

    Example:
        >>> build("mlp", num_classes=3, input_shape=(4,), hidden=(5,))(torch.zeros(2, 4)).shape
        torch.Size([2, 3])
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}{_nearest(name, MODELS)}")
    builder = MODELS[name]
    known = [option for option in inspect.signature(builder).parameters if option not in _COMMON]
    for option in options:
        if option not in known:
            raise ValueError(f"unknown option {option!r} of model {name!r}{_nearest(option, known)}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes} for model {name!r}")
    if norm is not None:
        options["norm"] = norm
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return builder(num_classes=num_classes, input_shape=input_shape, **options)


def encode(name: str, data: Dataset, options: Mapping[str, Any]) -> Dataset:
    """A data set as that model reads it: texts become token ids, everything else stays.

    Args:
        name: A key of :data:`MODELS`.
        data: The examples.
        options: The model's own options, all of them.

    Raises:
        ValueError: A model of images on texts, or the other way round.
    """
    if (name == "text") != isinstance(data, TextData):
        takes, has = ("texts", "images") if name == "text" else ("images", "texts")
        raise ValueError(f"model {name!r} takes {takes}, the data set has {has}")
    return tokenised(data, options["checkpoint"], options["max_length"]) if isinstance(data, TextData) else data


def units(module: nn.Module) -> dict[str, int]:
    """Layer -> channels that belong together, where only the model knows it: heads (``derive_axes``)."""
    return module.units() if isinstance(module, TextClassifier) else {}


_COMMON = ("num_classes", "input_shape", "norm")


def _nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    """What to write instead of an unknown name."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; it must be one of {', '.join(known) or '(none)'}"
