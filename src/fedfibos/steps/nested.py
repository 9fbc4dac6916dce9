"""Where a local step runs: on all that a client holds, or on a smaller member of its nested family."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedfibos.backend.workspace import Workspace
from fedfibos.model import Model
from fedfibos.params import Layout
from fedfibos.submodel import Submodel
from fedfibos.training import LocalTraining

Constrain = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Trainable values -> (effective weights, slope): the forward pass uses the first, the gradient is
multiplied by the second. Both have the local vector's shape."""

Members = tuple[Submodel | None, ...]
"""What one step trains, one after another; None is all that the client holds."""


def drawn_members(
    submodel: Submodel, local: LocalTraining, generator: torch.Generator, num_steps: int
) -> list[Members]:
    """What each step trains.

    A share ``local.nested`` of the steps trains a smaller member, drawn evenly (``draw``), or all and the smallest
    member together (``sandwich``: Yu & Huang 2019); the others train all that the client holds.
    """
    if not submodel.nested:
        return [(None,)] * num_steps
    chosen = torch.rand(num_steps, generator=generator) < local.nested
    which = torch.randint(len(submodel.nested), (num_steps,), generator=generator)
    both = (None, submodel.nested[-1])
    smaller = [both if local.nested_rule == "sandwich" else (submodel.nested[n],) for n in which.tolist()]
    return [members if nested else (None,) for nested, members in zip(chosen.tolist(), smaller, strict=True)]


@torch.no_grad()
def enter(
    work: Workspace, at: Workspace, member: Submodel | None, trained: Tensor, constrain: Constrain | None
) -> Tensor | None:
    """Put a step's effective weights where it runs; what multiplies its gradients, None for 1.

    Args:
        work: Where the client's whole submodel is trained.
        at: Where this step runs: there, or among the smaller tensors of a family member.
        member: The family member that it trains; None: all.
        trained: The trainable values; in ``work`` already where they are the effective weights.
        constrain: As of :func:`local_training`.
    """
    if trained is work.values:
        return None
    effective, slope = (trained, None) if constrain is None else constrain(trained)
    if member is not None:
        effective = member.gather(effective)
        if member.indicator is not None:
            slope = member.indicator if slope is None else slope * member.indicator
    if at is work:
        at.values.copy_(effective)  # buffers go on from step to step
    else:
        at.load(effective).train()
    return slope


def spread_out(gradients: Sequence[Tensor], member: Submodel, layout: Layout) -> list[Tensor]:
    """The gradients of a smaller slice in the tensors of the larger one, zero where it holds nothing."""
    spread = torch.zeros(layout.size, device=gradients[0].device)
    member.add_to(spread, torch.cat([gradient.reshape(-1) for gradient in gradients]), 1.0)
    return layout.views(spread)


@torch.no_grad()
def take_over(
    model: Model,
    at: Workspace,
    member: Submodel | None,
    submodel: Submodel,
    trained: Tensor,
    constrain: Constrain | None,
) -> None:
    """Make values that the forward pass itself has changed (max-norm) those that are trained.

    As in a plain loop, where the pass changes what the optimiser steps. Where trainable values are not the effective
    weights they change by the same factor; what is not held stays 0.
    """
    if not (at.fetch() or model.rewritten):
        return
    if trained is not at.values:
        effective = trained if constrain is None else constrain(trained)[0]
        now = at.values if member is None else _placed(member, at.values, effective)
        factor = torch.where(effective == 0, 1.0, now / effective)
        trained.copy_(torch.where(effective == trained, now, trained * factor))
    if submodel.indicator is not None:
        trained.mul_(submodel.indicator)


def _placed(member: Submodel, values: Tensor, rest: Tensor) -> Tensor:
    """The member's values where it holds any, and the rest elsewhere, in the client's local vector."""
    placed, held = torch.zeros_like(rest), torch.zeros_like(rest)
    member.add_to(placed, values, 1.0)
    member.count_in(held, 1.0)
    return torch.where(held > 0, placed, rest)
