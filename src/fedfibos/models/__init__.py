"""The models that ship with the package, plain ``nn.Module`` classes that know nothing of methods; and a user's own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.data.texts import TextData
from fedfibos.inputs import Inputs, forward
from fedfibos.models.cnn import CNN
from fedfibos.models.lenet import LeNet
from fedfibos.models.mlp import MLP
from fedfibos.models.resnet import resnet8, resnet18
from fedfibos.models.text import text_classifier
from fedfibos.own import called, find, is_own
from fedfibos.params import is_normalisation
from fedfibos.types import Dataset
from fedfibos.validation import check_name

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
        torch.default_generator.manual_seed(seed)
        shape = {"num_classes": num_classes, "input_shape": input_shape}
        module = (
            called("model.name", name, builder, **shape, **options) if is_own(name) else builder(**shape, **options)
        )
    if not isinstance(module, nn.Module):
        raise ValueError(f"model.name = {name!r}: it must give an nn.Module, got {type(module).__name__}")
    return module


def parameters_of(name: str) -> Mapping[str, inspect.Parameter]:
    """Every parameter of the function behind a model's name; of a user's own, as it is annotated."""
    return inspect.signature(find("model.name", name, MODELS), eval_str=not is_own(name)).parameters


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
    builder = find("model.name", name, MODELS)
    own = None if isinstance(builder, type) else getattr(builder, "encode", None)  # a class may have one of its own
    if own is not None:
        encoded: Dataset = called("model.name", name, own, data, **options) if is_own(name) else own(data, **options)
        return encoded
    if isinstance(data, TextData):
        raise ValueError(f"model {name!r} takes tensors, the data set has texts")
    return data


def check_module(name: str, module: nn.Module, example: Inputs, num_classes: int, seed: int = 0) -> None:
    """Raise ValueError unless a model maps a batch to one score a class: in a line, before anything is trained.

    Args:
        name: The model's name, for the message.
        module: The model; layers that take their size from the first batch (``nn.LazyLinear``) get it here.
        example: A batch of two examples.
        num_classes: C.
        seed: Of the values of layers that get their size here. The global random state is left as it was.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError(f"model.name = {name!r}: it must give a plain nn.Module, got a scripted one")
    try:
        copy.deepcopy(module)  # every client's workspace is one
    except Exception as error:
        raise ValueError(f"model.name = {name!r}: the module cannot be copied: {error}") from error
    was_training = module.training
    module.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        logits = called("model.name", name, forward, module, example)
    module.train(was_training)
    got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if got != (2, num_classes):
        wanted = f"logits of shape (2, {num_classes}), one a class"
        raise ValueError(f"model.name = {name!r}: it must map 2 examples to {wanted}, got {got}")


def moved_buffers(module: nn.Module, example: Inputs) -> list[str]:
    """Buffers other than statistics of normalisation that a forward pass in training changes.

    Every client begins with their first values, and evaluation keeps these: only statistics of normalisation are
    recomputed on training data.
    """
    trial = copy.deepcopy(module).train()
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            forward(trial, example)
    except Exception:  # it needs more than two examples, say; training itself tells what is wrong
        return []
    return [
        name
        for name, buffer in trial.named_buffers()
        if not is_normalisation(trial.get_submodule(name.rpartition(".")[0])) and not torch.equal(buffer, before[name])
    ]


_COMMON = ("num_classes", "input_shape", "norm")
