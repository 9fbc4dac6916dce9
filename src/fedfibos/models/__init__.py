"""The models that ship with the package, plain ``nn.Module`` classes that know nothing of methods; and a user's own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedfibos.common.inputs import Inputs, described, forward
from fedfibos.common.user_code import called, find, is_own
from fedfibos.common.validation import check_name
from fedfibos.data.texts import TextData
from fedfibos.models.cnn import CNN
from fedfibos.models.lenet import LeNet
from fedfibos.models.mlp import MLP
from fedfibos.models.resnet import resnet8, resnet18
from fedfibos.models.size import check_size
from fedfibos.models.text import text_classifier
from fedfibos.params import check_float32, is_normalisation
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
        module = (
            called("model.name", name, builder, **shape, **options) if is_own(name) else builder(**shape, **options)
        )
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
            f"built-in {type(builder).__name__}: wrap it in a function"
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
    builder = find("model.name", name, MODELS)
    own = getattr(builder, "encode", None)
    if isinstance(builder, type) and inspect.isfunction(inspect.getattr_static(builder, "encode", None)):
        own = None  # a method of the module's: an autoencoder has one
    if own is not None:
        encoded: Dataset = called("model.name", name, own, data, **options) if is_own(name) else own(data, **options)
        return encoded
    if isinstance(data, TextData):
        raise ValueError(f"model {name!r} takes tensors, the data set has texts")
    return data


def check_module(name: str, module: nn.Module, example: Inputs, num_classes: int, seed: int = 0) -> None:
    """Raise ValueError unless a model maps a batch to one score a class: in a line, before anything is trained.

    Its copies must do so too, in training as in evaluation, by parameters of their own with dense gradients.

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
        check_float32(module)
    except ValueError as error:
        raise ValueError(f"model.name = {name!r}: {error}") from error
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        _evaluated(name, module, example, seed)
    trial = _copied(name, module)  # the module itself may keep what it computes, which need not be copyable
    try:
        logits = _evaluated(name, trial, example, seed)
    except ValueError as error:
        if not _runs(module, example):
            raise
        raise ValueError(
            f"{error}, but the module itself does not: this is a copy of it, as every client trains one; a function "
            "kept in it (a lambda, a hook) may refer to the module itself: make it a method"
        ) from error
    _check_logits(name, logits, num_classes)
    _check_copy(name, module, example, num_classes)


def _evaluated(name: str, module: nn.Module, example: Inputs, seed: int) -> object:
    """What the module gives for a batch in evaluation mode; its own mode stays.

    Raises:
        ValueError: What it raises, in a line.
    """
    was_training = module.training
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(seed)
            return called("model.name", name, forward, module.eval(), example)
    except ValueError as error:
        tensors = [example] if isinstance(example, Tensor) else example.values()
        if any(tensor.is_floating_point() and tensor.dtype != torch.float32 for tensor in tensors):
            raise ValueError(f"{error}; an example is {described(example)}, parameters are float32") from error
        raise
    finally:
        module.train(was_training)


def _runs(module: nn.Module, example: Inputs) -> bool:
    """Whether a module takes a batch in evaluation mode."""
    try:
        _evaluated("", module, example, 0)
    except ValueError:
        return False
    return True


def check_test_inputs(name: str, module: nn.Module, train: Inputs, test: Inputs) -> None:
    """Raise ValueError for test inputs of another kind than training ones which the model cannot take.

    Args:
        name: The model's name, for the message.
        module: The model.
        train: A batch of training examples.
        test: A batch of test examples.
    """
    if described(train) == described(test):
        return
    trial = copy.deepcopy(module).eval()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            called("model.name", name, forward, trial, test)
    except ValueError as error:
        kinds = f"a test example is {described(test)}, a training example {described(train)}"
        raise ValueError(f"{kinds}: {error}") from error


def _copied(name: str, module: nn.Module) -> nn.Module:
    """A copy of the module; every client's workspace is one."""
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(f"model.name = {name!r}: the module cannot be copied: {error}") from error


def _check_logits(name: str, logits: object, num_classes: int, when: str = "") -> None:
    """Raise ValueError unless they are one score a class of two examples."""
    got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if got != (2, num_classes):
        wanted = f"logits of shape (2, {num_classes}), one a class"
        raise ValueError(f"model.name = {name!r}: it must map 2 examples to {wanted}, got {got}{when}")


def _check_copy(name: str, module: nn.Module, example: Inputs, num_classes: int) -> None:
    """Raise ValueError unless a copy of the module gives logits by its own parameters, in both modes.

    A function that the module keeps and that refers to the module (a lambda, a hook) is not copied: in a copy it goes
    on using the module's parameters, which no client trains.

    Args:
        name: The model's name.
        module: The model.
        example: A batch of two examples.
        num_classes: C.
    """
    theirs = {key: p for key, p in module.named_parameters() if p.requires_grad}
    for training in (False, True):
        twin = _copied(name, module).train(training)
        own = {key: p for key, p in twin.named_parameters() if p.requires_grad}
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                logits = forward(twin, example)
        except Exception:  # in evaluation: gradients are wanted here alone; in training: that tells what is wrong
            continue
        _check_logits(name, logits, num_classes, " in training mode" if training else "")
        if not logits.requires_grad:
            continue
        tensors = (*own.values(), *theirs.values())
        try:
            gradients = torch.autograd.grad(logits.float().sum(), tensors, allow_unused=True)
        except RuntimeError:  # training itself tells what is wrong
            continue
        for (key, parameter), gradient in zip(theirs.items(), gradients[len(own) :], strict=True):
            if gradient is not None and _matters(parameter, twin, example):
                raise ValueError(
                    f"model.name = {name!r}: in a copy of the module a function kept in it (a lambda, a hook) goes on "
                    f"using parameter {key!r} of the module itself, which nobody would train: make it a method"
                )
        for key, gradient in zip(own, gradients, strict=False):
            if gradient is not None and gradient.layout != torch.strided:
                raise ValueError(
                    f"model.name = {name!r}: gradients must be dense, got sparse ones of parameter {key!r}: "
                    "build nn.Embedding with sparse=False"
                )


def _matters(parameter: nn.Parameter, twin: nn.Module, example: Inputs) -> bool:
    """Whether a copy's logits move with a parameter of the original.

    A gradient alone does not say so: the copy of a scripted part has one to the original, whose values it does not use.
    """
    before = parameter.detach().clone()
    found = []
    try:
        for change in (0.0, 1.0):
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.default_generator.manual_seed(0)
                parameter.copy_(before).add_(change)
                found.append(forward(twin, example).nan_to_num())
    finally:
        with torch.no_grad():
            parameter.copy_(before)
    return not torch.equal(*found)


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
