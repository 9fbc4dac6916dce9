"""The bundled models and a user's own: found by name, built with their options, given data as they read them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from fedfibos.common.user_code import find, guard, is_own, unguard
from fedfibos.common.validation import check_name
from fedfibos.data.texts import TextData
from fedfibos.models.cnn import CNN
from fedfibos.models.lenet import LeNet
from fedfibos.models.mlp import MLP
from fedfibos.models.resnet import resnet8, resnet18
from fedfibos.models.size import check_size
from fedfibos.models.text import text_classifier
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
        name: A key of :data:`MODELS`, or a user's own function, ``module:function``, called like ours: with
            ``num_classes``, ``input_shape``, ``norm`` where one is given, and its options, all by name.
        num_classes: Number of outputs.
        input_shape: Shape of one example, ``(channels, height, width)``; the MLP takes any shape.
        norm: Normalisation layer, ``group``, ``batch`` or (MLP and CNN) ``none``; None is the model's
            own default: ``group``, for the MLP ``none``.
        seed: Seed of the initial values. The global random state is left as it was.
        **options: The model's own options, such as ``hidden`` of the MLP.

    Raises:
        ValueError: Unknown model or option, a value that the model can't use, or no module.

    Example:
        >>> build("mlp", num_classes=3, input_shape=(4,), hidden=(5,))(torch.zeros(2, 4)).shape
        torch.Size([2, 3])
    """
    builder = find("model.name", name, MODELS)
    check_options(name, options)
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes} for model {name!r}")
    if norm is not None:
        options["norm"] = norm
    with torch.random.fork_rng(devices=[]):
        shape = {"num_classes": num_classes, "input_shape": input_shape}
        if not is_own(name) and builder is not text_classifier:  # that one has the size of a file on this machine
            check_size(lambda: builder(**shape, **options))
        torch.default_generator.manual_seed(seed)
        module = builder(**shape, **options)
    if not isinstance(module, nn.Module):
        raise ValueError(f"model.name = {name!r}: it must give an nn.Module, got {type(module).__name__}")
    return module


def parameters_of(name: str) -> Mapping[str, inspect.Parameter]:
    """Every parameter of the function behind a model's name; of a user's own, as it is annotated."""
    builder = find("model.name", name, MODELS)
    try:
        return inspect.signature(builder, eval_str=not is_own(name)).parameters
    except (TypeError, ValueError):  # written in C
        raise ValueError(
            f"model.name = {name!r}: it must be a function or class of Python's whose parameters can be read, got a "
            f"built-in {type(unguard(builder)).__name__}: wrap it in a function"
        ) from None


def check_options(name: str, options: Iterable[str]) -> None:
    """Raise ValueError for an option that a model does not have; one that takes any keyword has them all."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters_of(name).values()):
        return
    for option in options:
        check_name(f"an option of {name}", option, options_of(name))


def options_of(name: str) -> Mapping[str, inspect.Parameter]:
    """The options of a model besides its shape and normalisation."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = parameters_of(name).items()
    return {option: value for option, value in parameters if option not in _COMMON and value.kind not in variadic}


def encode(name: str, data: Dataset, options: Mapping[str, Any]) -> Dataset:
    """A data set as that model reads it: its function's own ``encode(data, **options)``, where it has one.

    Args:
        name: The model's name.
        data: The examples.
        options: The model's own options, all of them.

    Raises:
        ValueError: A model of images on texts, or the other way round.
    """
    builder = unguard(find("model.name", name, MODELS))
    own = getattr(builder, "encode", None)
    if isinstance(builder, type) and inspect.isfunction(inspect.getattr_static(builder, "encode", None)):
        own = None  # a method of the module's: an autoencoder has one
    if own is not None:
        encoded: Dataset = (guard("model.name", name, own) if is_own(name) else own)(data, **options)
        return encoded
    if isinstance(data, TextData):
        raise ValueError(f"model {name!r} takes tensors, the data set has texts")
    return data


_COMMON = ("num_classes", "input_shape", "norm")
