"""One optimiser step on the held coordinates of a client's tensors, in place."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedfibos.training import LocalTraining

Move = Callable[[list[Tensor], list[Tensor] | None], None]
"""One optimiser step in place, given the gradients and, tensor by tensor, 1 on held coordinates and 0 elsewhere.

Held coordinates only: a zero gradient at a zero value leaves a coordinate at zero under either optimiser.
"""


def optimiser(local: LocalTraining, values: list[Tensor]) -> Move:
    """The optimiser of those settings on those tensors, its state fresh."""
    return _adamw(local, values) if local.optimizer == "adamw" else _sgd(local, values)


def _sgd(local: LocalTraining, values: list[Tensor]) -> Move:
    """torch.optim.SGD's rule, without bookkeeping that costs as much as a step of a small model."""
    momenta: list[Tensor] = []

    def move(gradients: list[Tensor], masks: list[Tensor] | None) -> None:
        if not (local.clip_norm or local.weight_decay or local.momentum):
            if masks is None:
                torch._foreach_add_(values, gradients, alpha=-local.lr)
            else:
                torch._foreach_addcmul_(values, gradients, masks, value=-local.lr)
            return
        _mask_and_clip(gradients, masks, local.clip_norm)
        if local.weight_decay:
            torch._foreach_add_(gradients, values, alpha=local.weight_decay)
        if local.momentum:
            if momenta:
                torch._foreach_mul_(momenta, local.momentum)
                torch._foreach_add_(momenta, gradients)
            else:
                momenta.extend(gradients)
        torch._foreach_add_(values, momenta or gradients, alpha=-local.lr)

    return move


def _adamw(local: LocalTraining, values: list[Tensor]) -> Move:
    """torch.optim.AdamW, its state fresh."""
    parameters = [nn.Parameter(value) for value in values]
    optimizer = torch.optim.AdamW(
        parameters,
        local.lr,
        betas=local.betas,
        weight_decay=local.weight_decay,
        fused=True,
        capturable=values[0].is_cuda,
    )
    optimizer._warned_capturable_if_run_uncaptured = True  # the first step is, on purpose

    def move(gradients: list[Tensor], masks: list[Tensor] | None) -> None:
        _mask_and_clip(gradients, masks, local.clip_norm)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient  # contiguous, as the fused step reads memory, whatever strides mean
        optimizer.step()
        optimizer.zero_grad()  # the next step's gradients would lie beside them

    return move


def _mask_and_clip(gradients: list[Tensor], masks: list[Tensor] | None, clip_norm: float) -> None:
    if masks is not None:
        torch._foreach_mul_(gradients, masks)
    if clip_norm:
        factor = clip_norm / (nn.utils.get_total_norm(gradients) + 1e-6)
        torch._foreach_mul_(gradients, factor.clamp(max=1.0))
