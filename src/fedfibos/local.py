"""Local training: K optimiser steps on a submodel. Every method trains through this one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedfibos.backend.optimizers import optimiser
from fedfibos.backend.recorded import Replayed, can_record
from fedfibos.common.inputs import Inputs, forward
from fedfibos.model import Model, Workspace, without_absent_classes
from fedfibos.params import Layout, Params
from fedfibos.submodel import Submodel
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset, Upload


@dataclass(frozen=True)
class Step:
    """One local step, as an observer sees it before the update.

    Attributes:
        module: The model at the effective weights; in a nested step on a slice, the really smaller one.
        inputs: The batch.
        labels: Its classes.
        gradients: Of the batch's mean loss, with respect to the effective weights, unmasked, in the module's layout
            order.
        loss: (logits, labels) -> mean loss.
        member: The nested family member that this step trains; None: all that the client holds.
    """

    module: nn.Module
    inputs: Inputs
    labels: Tensor
    gradients: Sequence[Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    member: Submodel | None = None


Observe = Callable[[Step], None]
"""Called once a step, before the update."""

Constrain = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Trainable values -> (effective weights, slope): the forward pass uses the first, the gradient is
multiplied by the second. Both have the local vector's shape."""


class LocalTrainingError(ValueError):
    """A client cannot train; the round rejects it, names it and goes on."""


def batch_indices(
    local: LocalTraining, num_examples: int, generator: torch.Generator, drop_single: bool
) -> Iterator[Tensor]:
    """Positions of the examples of each step.

    Epochs: a fresh permutation each, cut into batches; a last batch of one example is left out where
    ``drop_single`` (batch normalisation cannot train on it). Steps: permutations one after another, cut
    into batches of equal size, so every step has a full batch.
    """
    size = min(local.batch_size, num_examples)
    if local.steps is None:
        for _ in range(local.epochs or 0):
            for batch in torch.randperm(num_examples, generator=generator).split(size):
                if len(batch) > 1 or not drop_single:
                    yield batch
        return
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(local.steps):
        while len(order) < size:
            order = torch.cat([order, torch.randperm(num_examples, generator=generator)])
        yield order[:size]
        order = order[size:]


@contextmanager
def seeded(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Run a block (dropout) on its own random stream and leave torch's global streams as they were.

    ``torch.manual_seed`` is not used: without a CUDA device it formats a stack trace, which costs more than a small
    client's training.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    streams = [torch.default_generator]
    if device.type == "cuda":
        torch.cuda.init()
        index = torch.cuda.current_device() if device.index is None else device.index
        streams.append(torch.cuda.default_generators[index])
    before = [each.get_state() for each in streams]
    try:
        for each in streams:
            each.manual_seed(seed)
        yield
    finally:
        for each, state in zip(streams, before, strict=True):
            each.set_state(state)


def local_training(
    model: Model,
    params: Params,
    submodel: Submodel,
    client: Client,
    *,
    constrain: Constrain | None = None,
    observe: Observe | None = None,
) -> Upload:
    """Train a submodel on a client's data (Algorithm 1, lines 10 to 18).

    x₀ = x̃ ⊙ M; K times x ← x − η·(g ⊙ M) with g the gradient at the effective weights; Δ = x₀ − x_K, which is
    zero off the mask. A parameter that the loss does not reach has gradient zero (weight decay still shrinks it).
    With ``absent_labels = "mask"`` the client counts as no holder of the classifier's entries of classes that it has no
    example of (HeteroFL's masked cross-entropy, for every method).

    Args:
        model: Architecture and layout.
        params: The global parameters x̃; not changed.
        submodel: What the client holds.
        client: Its data, settings and random streams.
        constrain: How trainable values become effective weights; None: they are the same.
        observe: What to accumulate from each step's gradients; None: nothing.

    Raises:
        LocalTrainingError: The client has no example, or a single one under batch normalisation.
    """
    data, local = client.data, client.local
    if data is None or len(data) == 0:
        raise LocalTrainingError("it has no training example, wanted at least 1")
    work = model.workspace(submodel)
    if work.has_batch_norm and min(len(data), local.batch_size) == 1:
        raise LocalTrainingError("it trains on batches of one example, batch normalisation wants at least 2")
    start = submodel.gather(params.flat)
    work.load(start).train()
    trained = work.values if constrain is None and not submodel.nested else start.clone()
    masks = None if submodel.indicator is None else work.layout.views(submodel.indicator)
    move = optimiser(local, work.layout.views(trained))
    autocast = local.autocast(model.device)
    counted, loss_of = _of_present_classes(submodel, model, work.layout, data, local.absent_labels == "mask")
    total_loss = torch.zeros((), dtype=torch.float64, device=model.device)

    def step(inputs: Inputs, labels: Tensor) -> None:
        member = next(members)
        at = work if member is None else model.workspace(member)
        slope = _enter(work, at, member, trained, constrain)
        with autocast:
            loss = loss_of(forward(at.module, inputs), labels)
        _take_over(model, at, member, submodel, trained, constrain)
        gradients = _of_their_own(at.parameters, torch.autograd.grad(loss, at.parameters, allow_unused=True))
        if observe is not None:
            observe(Step(at.module, inputs, labels, gradients, loss_of, member))
        if at is not work:
            assert member is not None
            gradients = _spread(gradients, member, work.layout)
        if slope is not None:
            torch._foreach_mul_(gradients, work.layout.views(slope))
        move(gradients, masks)
        total_loss.add_(loss.detach())

    batches = list(batch_indices(local, len(data), client.stream("batches"), work.has_batch_norm))
    members = iter(drawn_members(submodel, local, client.stream("nested"), len(batches)))
    run = Replayed(step, work.recorder if can_record(model.device) and not submodel.nested else None, work.rebound)
    with seeded(client.stream("dropout"), model.device):
        for inputs, labels in feed(model, data, batches, client.stream("augment"), model.device.type != "cpu"):
            run(inputs, labels)
    delta = start.sub_(trained) if counted is None else torch.where(counted, start.sub_(trained), 0.0)
    return Upload(submodel, delta, total_loss / len(batches), len(batches), counted=counted)


def drawn_members(
    submodel: Submodel, local: LocalTraining, generator: torch.Generator, num_steps: int
) -> list[Submodel | None]:
    """Which family member each step trains: of a share ``local.nested`` a smaller one, drawn evenly; else None, all."""
    if not submodel.nested:
        return [None] * num_steps
    chosen = torch.rand(num_steps, generator=generator) < local.nested
    which = torch.randint(len(submodel.nested), (num_steps,), generator=generator)
    return [submodel.nested[n] if smaller else None for smaller, n in zip(chosen.tolist(), which.tolist(), strict=True)]


@torch.no_grad()
def _enter(
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


def _spread(gradients: Sequence[Tensor], member: Submodel, layout: Layout) -> list[Tensor]:
    """The gradients of a smaller slice in the tensors of the larger one, zero where it holds nothing."""
    spread = torch.zeros(layout.size, device=gradients[0].device)
    member.add_to(spread, torch.cat([gradient.reshape(-1) for gradient in gradients]), 1.0)
    return layout.views(spread)


def feed(
    model: Model, data: Dataset, batches: Sequence[Tensor], augment: torch.Generator, at_once: bool
) -> Iterator[tuple[Inputs, Tensor]]:
    """Inputs and labels of every step, on the model's device.

    Args:
        model: Says where.
        data: The examples.
        batches: Their positions, step by step.
        augment: Random stream of the augmentation.
        at_once: Put all steps' inputs there before the first step, gathered in one go where an input is one tensor: a
            GPU would spend its time on small copies, and the processor its own on waiting for them. One batch is kept
            in memory at a time otherwise.
    """
    if at_once:
        together, sizes = torch.cat(list(batches)), [len(batch) for batch in batches]
        inputs = data.batch(together[:0])
        placed: Iterable[Inputs]
        if isinstance(inputs, Tensor):
            all_inputs = model.place(data.batch(together, augment))
            assert isinstance(all_inputs, Tensor)
            placed = all_inputs.split(sizes)
        else:
            placed = [model.place(data.batch(batch, augment)) for batch in batches]
        labels = data.labels[together].to(model.device)
        yield from zip(placed, labels.split(sizes), strict=True)
        return
    for batch in batches:
        yield model.place(data.batch(batch, augment)), data.labels[batch].to(model.device)


@torch.no_grad()
def _take_over(
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


def _of_present_classes(
    submodel: Submodel, model: Model, layout: Layout, data: Dataset, masked: bool
) -> tuple[Tensor | None, Callable[[Tensor, Tensor], Tensor]]:
    """What the client counts as a holder of, None for what it holds; and its loss."""
    if not masked:
        return None, partial(cross_entropy_loss, present=None)
    counted = without_absent_classes(model, layout, data.labels).to(model.device)
    loss_of = partial(cross_entropy_loss, present=data.labels.unique().to(model.device))
    return counted if submodel.held is None else counted & submodel.held, loss_of


def _of_their_own(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[Tensor]:
    """Gradients that may be changed in place: zeros where there is none, a copy where two lie in the same memory.

    Autograd returns one tensor for both terms of a sum of parameters, and expanded ones for a sum over a parameter.
    Those of a convolution with channels last lie so too, and are laid out as the parameters are: one tensor of another
    layout costs the fast path of a whole list.
    """
    seen: set[int] = set()
    own = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            own.append(torch.zeros_like(parameter))
            continue
        place = gradient.untyped_storage().data_ptr()
        taken = place in seen or not gradient.is_contiguous()
        own.append(gradient.clone(memory_format=torch.contiguous_format) if taken else gradient)
        seen.add(place)
    return own


def cross_entropy_loss(logits: Tensor, labels: Tensor, *, present: Tensor | None) -> Tensor:
    """Cross-entropy; with ``present`` the other classes' logits are 0 (they stay in the denominator)."""
    if present is not None:
        # not keep[present] = 1.0, which copies the value to a GPU and waits: no recording allows it
        keep = torch.zeros(logits.shape[1], device=logits.device).index_fill_(0, present.to(logits.device), 1.0)
        logits = logits * keep
    return cross_entropy(logits.float(), labels)
