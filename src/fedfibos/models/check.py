"""Whether a module can be trained at all: found by running copies of it on a batch, before any training."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedfibos.backend.reductions import all_finite
from fedfibos.common.copies import copy_module
from fedfibos.common.draws import fixed_draws
from fedfibos.common.inputs import Inputs, check_dense, copied, described, forward
from fedfibos.common.user_code import UserCodeError, run_user_code
from fedfibos.params import check_finite, check_float32, check_not_scripted
from fedfibos.probes.takes import advice_on

Check = Callable[[object], None]
"""Outputs of a batch of two examples -> nothing; raises ValueError for those which a model must not give."""


def check_module(module: nn.Module, example: Inputs, check: Check, seed: int = 0) -> None:
    """Raise ValueError unless a model maps a batch to the outputs that are wanted: in a line, before any training.

    Its copies must do so too, in training as in evaluation and for any number of examples, by parameters of their own
    with dense gradients.

    Args:
        module: The model; layers that take their size from the first batch (``nn.LazyLinear``) get it here.
        example: A batch of two examples.
        check: Raises ValueError for outputs which it must not give.
        seed: Of the values of layers that get their size here. The global random states are left as they were.
    """
    check_not_scripted(module, "it must give")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_meta:
            raise ValueError(f"its parameters and buffers must have values, got {name!r} on torch's meta device")
    check_float32(module)
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        try:
            _evaluated(module, example, seed)
        except UserCodeError as error:
            raise _about(error, example) from error
    check_finite(module)
    trial = _copied(module)  # the module itself may keep what it computes, which need not be copyable
    try:
        logits = _evaluated(trial, example, seed)
    except UserCodeError as error:
        if not _runs(module, example):
            raise _about(error, example) from error
        raise UserCodeError(
            f"{error}, but the module itself does not: this is a copy of it, as every client trains one; a function "
            "kept in it (a lambda, a hook) may refer to the module itself: make it a method"
        ) from error
    _check_outputs(logits, check)
    _check_numbers(logits, example)
    _check_other_sizes(module, example, logits, seed)
    for training in (False, True):
        _check_copy(module, example, check, training=training)


def outputs_of(module: nn.Module, example: Inputs) -> Tensor:
    """What a copy of a checked module gives for a batch, in evaluation.

    Raises:
        UserCodeError: It fails.
    """
    with fixed_draws(), torch.no_grad():
        outputs = run_user_code(forward, _copied(module).eval(), copied(example))
    assert isinstance(outputs, Tensor)
    return outputs


def check_test_inputs(module: nn.Module, train: Inputs, test: Inputs) -> None:
    """Raise ValueError for test inputs of another kind than training ones which the model cannot take.

    Args:
        module: The model.
        train: A batch of training examples.
        test: A batch of test examples.
    """
    if described(train) == described(test):
        return
    trial = copy_module(module).eval()
    try:
        with fixed_draws(), torch.no_grad():
            run_user_code(forward, trial, copied(test))
    except UserCodeError as error:
        kinds = f"a test example is {described(test)}, a training example {described(train)}"
        raise UserCodeError(f"{error}; {kinds}") from error


def _evaluated(module: nn.Module, example: Inputs, seed: int) -> object:
    """What the module gives for a batch in evaluation mode; its own mode stays.

    Raises:
        UserCodeError: What it raises, in a line.
    """
    was_training = module.training
    try:
        with fixed_draws(seed % 2**32), torch.no_grad():
            torch.default_generator.manual_seed(seed)
            return run_user_code(forward, module.eval(), copied(example))
    finally:
        module.train(was_training)


def _about(error: UserCodeError, example: Inputs) -> UserCodeError:
    """The error, with what an example is, and what it may have been meant to be."""
    tensors = [example] if isinstance(example, Tensor) else example.values()
    others = any(tensor.dtype != torch.float32 for tensor in tensors)
    numbers = any(tensor.dtype in (torch.float64, torch.float16, torch.uint8) for tensor in tensors)
    return UserCodeError(
        f"{error}; an example is {described(example)}"
        + (", parameters are float32" if others else "")
        + (": give the data set inputs.float()" if numbers else "")
    )


def _runs(module: nn.Module, example: Inputs) -> bool:
    """Whether a module takes a batch in evaluation mode."""
    try:
        _evaluated(module, example, 0)
    except UserCodeError:
        return False
    return True


def _copied(module: nn.Module) -> nn.Module:
    """A copy of the module; every client's workspace is one."""
    try:
        return copy_module(module)
    except Exception as error:
        raise ValueError(f"the module cannot be copied: {error}") from error


def _check_outputs(outputs: object, check: Check, when: str = "") -> None:
    """Raise ValueError unless the outputs of two examples are what is wanted."""
    try:
        check(outputs)
    except UserCodeError:
        raise
    except ValueError as error:
        raise ValueError(f"{error}{when}{advice_on(outputs)}") from error
    if isinstance(outputs, Tensor):
        check_dense("its logits", outputs)


def _check_numbers(logits: object, example: Inputs, when: str = "") -> None:
    """Raise ValueError where logits of finite inputs are no numbers: no loss of theirs is one."""
    inputs = [example] if isinstance(example, Tensor) else example.values()
    if not isinstance(logits, Tensor) or not all(all_finite(tensor) for tensor in inputs):
        return
    if bad := int((logits.isnan() | logits.isposinf()).sum()):  # -∞ rules a class out
        got = "nan" if logits.isnan().any() else "inf"
        raise ValueError(f"its logits must be numbers, got {got} in {bad} of {logits.numel()}, of finite inputs{when}")


def _check_other_sizes(module: nn.Module, example: Inputs, of_two: object, seed: int) -> None:
    """Raise ValueError for a model of batches of one size: clients have as many examples as they have.

    On a single one it may fail, as a norm over the examples of a batch does, but not lose a dimension (``squeeze``).
    """
    for size in (3, 1):
        wanted = f"batches of any size are wanted: it takes 2 examples, but of {size}"
        try:
            logits = _evaluated(_copied(module), of_size(example, size), seed)
        except UserCodeError as error:
            if size == 1:
                return
            raise UserCodeError(f"{error}; {wanted} it fails") from error
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if isinstance(of_two, Tensor) and got != (size, *of_two.shape[1:]):
            raise ValueError(f"{wanted} it makes logits of shape {got}")


def of_size(example: Inputs, examples: int) -> Inputs:
    """A batch with so many examples, the first ones again and again."""

    def repeated(tensor: Tensor) -> Tensor:
        times = math.ceil(examples / max(len(tensor), 1))
        return torch.cat([tensor] * times)[:examples]

    if isinstance(example, Tensor):
        return repeated(example)
    return {name: repeated(tensor) for name, tensor in example.items()}


def _check_copy(module: nn.Module, example: Inputs, check: Check, *, training: bool) -> None:
    """Raise ValueError unless a copy of the module gives logits by its own parameters.

    A function that the module keeps and that refers to the module (a lambda, a hook) is not copied: in a copy it goes
    on using the module's parameters, which no client trains.

    Args:
        module: The model.
        example: A batch of two examples.
        check: As of :func:`check_module`.
        training: The mode of the copy.
    """
    twin = _copied(module).train(training)
    theirs = {key: p for key, p in module.named_parameters() if p.requires_grad}
    own = {key: p for key, p in twin.named_parameters() if p.requires_grad}
    gradients = _gradients(module, twin, (*own.values(), *theirs.values()), example, check)
    if gradients is None:
        return
    for (key, parameter), gradient in zip(theirs.items(), gradients[len(own) :], strict=True):
        if gradient is not None and _matters(parameter, twin, example):
            raise ValueError(
                "in a copy of the module a function kept in it (a lambda, a hook) goes on using parameter "
                f"{key!r} of the module itself, which nobody would train: make it a method"
            )
    for key, gradient in zip(own, gradients, strict=False):
        if gradient is not None and gradient.layout != torch.strided:
            raise ValueError(
                f"gradients must be dense, got sparse ones of parameter {key!r}: build nn.Embedding with sparse=False"
            )
    if training and own and all(gradient is None for gradient in gradients[: len(own)]):
        raise ValueError(
            "nothing can be trained: no gradient goes from its logits to a parameter (they are detached, computed "
            "under no_grad, or of no parameter)"
        )


def _gradients(
    module: nn.Module, twin: nn.Module, tensors: tuple[nn.Parameter, ...], example: Inputs, check: Check
) -> tuple[Tensor | None, ...] | None:
    """Gradients of a copy's logits; None where there can be none, and need not: in evaluation, or of two examples.

    Raises:
        ValueError: Training fails, or gives no logits.
    """
    try:
        with fixed_draws(), torch.enable_grad():
            logits = run_user_code(forward, twin, copied(example))
    except UserCodeError as error:
        if not twin.training or _trains(module, of_size(example, 8)):
            return None
        raise UserCodeError(f"{error}; in training mode") from error
    _check_outputs(logits, check, " in training mode" if twin.training else "")
    if twin.training:
        _check_numbers(logits, example, " in training mode")
    if not logits.requires_grad:
        return (None,) * len(tensors)
    try:
        return torch.autograd.grad(logits.float().sum(), tensors, allow_unused=True)
    except RuntimeError as error:
        if not twin.training:
            return None
        raise ValueError(f"gradients cannot be taken through it: {error}") from error


def _trains(module: nn.Module, example: Inputs) -> bool:
    """Whether a copy of the module takes a batch in training mode."""
    try:
        with fixed_draws():
            run_user_code(forward, _copied(module).train(), copied(example))
    except UserCodeError:
        return False
    return True


def _matters(parameter: nn.Parameter, twin: nn.Module, example: Inputs) -> bool:
    """Whether a copy's logits move with a parameter of the original.

    A gradient alone does not say so: the copy of a scripted part has one to the original, whose values it does not use.
    """
    before = parameter.detach().clone()
    found = []
    try:
        for change in (0.0, 1.0):
            with fixed_draws(), torch.no_grad():
                parameter.copy_(before).add_(change)
                found.append(forward(twin, copied(example)).nan_to_num())
    finally:
        with torch.no_grad():
            parameter.copy_(before)
    return not torch.equal(*found)
