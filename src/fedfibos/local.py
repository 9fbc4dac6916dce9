"""Local training: K optimiser steps on a submodel. Every method trains through this one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfibos.backend.optimizers import optimiser
from fedfibos.backend.recorded import Replayed, can_record
from fedfibos.backend.reductions import all_finite
from fedfibos.backend.workspace import Workspace
from fedfibos.common.draws import reseeded
from fedfibos.common.inputs import Inputs, check_inputs, copied, forward
from fedfibos.common.user_code import naming
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.steps.drift import pull_of
from fedfibos.steps.faulty_inputs import faulty_inputs
from fedfibos.steps.fitting import check_data, check_outputs, largest_class, misfit
from fedfibos.steps.loss import counted_of, loss_of
from fedfibos.steps.nested import Constrain, drawn_members, enter, spread_out, take_over
from fedfibos.submodel import Submodel
from fedfibos.tasks.task import Loss
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset, Upload


@dataclass(frozen=True)
class Step:
    """One local step, as an observer sees it before the update.

    Attributes:
        module: The model at the effective weights; in a nested step on a slice, the really smaller one.
        inputs: The batch.
        labels: Its targets.
        gradients: Of the batch's mean loss, with respect to the effective weights, unmasked, in the module's layout
            order.
        loss: (outputs, targets) -> mean loss; of a batch of one that example's own.
        member: The nested family member that this step trains; None: all that the client holds.
    """

    module: nn.Module
    inputs: Inputs
    labels: Tensor
    gradients: Sequence[Tensor]
    loss: Loss
    member: Submodel | None = None


Observe = Callable[[Step], None]
"""Called once a step, before the update."""


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
    """Run a block (dropout) on its own random stream and leave the global streams as they were.

    Torch's, and those of Python and numpy, which a user's forward or batches may draw from.

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
        with reseeded(seed):
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
    example of (HeteroFL's masked cross-entropy, for every method). With ``proximal`` or a correction of the client's,
    g is that of :mod:`fedfibos.steps.drift` too.

    Args:
        model: Architecture and layout.
        params: The global parameters x̃; not changed.
        submodel: What the client holds.
        client: Its data, settings and random streams.
        constrain: How trainable values become effective weights; None: they are the same.
        observe: What to accumulate from each step's gradients; None: nothing.

    Raises:
        LocalTrainingError: The client has no example, or a single one under batch normalisation; or (on a processor,
            which need not be waited for) its batches have values that are not finite.
    """
    data, local = _data_of(client, model), client.local
    work = model.workspace(submodel)
    if work.has_batch_norm and min(len(data), local.batch_size) == 1:
        raise LocalTrainingError("it trains on batches of one example, batch normalisation wants at least 2")
    start = params.flat if submodel.is_all else submodel.gather(params.flat)
    work.load(start).train()
    trained = work.values if constrain is None and not submodel.nested else start.clone()
    masks = None if submodel.indicator is None else work.layout.views(submodel.indicator)
    move = optimiser(local, work.layout.views(trained))
    pull = pull_of(client, work.layout, start, trained)
    counted = counted_of(submodel, model, work.layout, local, data.labels)
    loss = loss_of(model.task, local, data.labels, model.device)
    largest = largest_class(data.labels, model.task)
    run_pass = _Passes(model, work, submodel, trained, client, largest, loss, constrain, observe)
    total_loss = torch.zeros((), dtype=torch.float64, device=model.device)

    def step(inputs: Inputs, labels: Tensor) -> None:
        first, *others = next(members)
        of = run_pass(first, inputs, labels)
        for member in others:
            also = run_pass(member, inputs, labels, of.logits if local.distill else None)
            torch._foreach_add_(of.gradients, also.gradients)
        if others:
            torch._foreach_div_(of.gradients, 1.0 + len(others))
        if pull is not None:
            pull(of.gradients)
        move(of.gradients, masks)
        total_loss.add_(of.loss)

    batches = list(batch_indices(local, len(data), client.stream("batches"), work.has_batch_norm))
    members = iter(drawn_members(submodel, local, client.stream("nested"), len(batches)))
    run = Replayed(step, work.recorder if can_record(model.device) and not submodel.nested else None, work.rebound)
    with seeded(client.stream("dropout"), model.device):
        for inputs, labels in feed(model, data, batches, client.stream("augment"), model.device.type != "cpu"):
            run(inputs, labels)
    delta = start - trained if submodel.is_all else start.sub_(trained)
    delta = delta if counted is None else torch.where(counted, delta, 0.0)
    if model.device.type == "cpu" and not (total_loss.isfinite() and all_finite(delta)):
        with seeded(client.stream("dropout"), model.device):
            why = faulty_inputs(feed(model, data, batches, client.stream("augment"), at_once=False))
        if why is not None:
            raise LocalTrainingError(why)
    return Upload(submodel, delta, total_loss / len(batches), len(batches), counted=counted)


def _data_of(client: Client, model: Model) -> Dataset:
    """A client's examples, checked."""
    if client.data is not None:
        with naming(f"client {client.id}"):
            check_data(client.data, model.task)
    if client.data is None or len(client.data) == 0:
        raise LocalTrainingError("it has no training example, wanted at least 1")
    return client.data


@dataclass(frozen=True)
class _Pass:
    """What a pass gave: gradients in the client's layout, the loss, the outputs."""

    gradients: list[Tensor]
    loss: Tensor
    logits: Tensor


@dataclass(frozen=True)
class _Passes:
    """Forward and backward passes of one client's training, at all it holds or at a member of its family."""

    model: Model
    work: Workspace
    submodel: Submodel
    trained: Tensor
    client: Client
    largest: int | None
    loss: Loss
    constrain: Constrain | None
    observe: Observe | None

    def __call__(self, member: Submodel | None, inputs: Inputs, labels: Tensor, teacher: Tensor | None = None) -> _Pass:
        """One pass; ``teacher``: outputs to come close to, where the step distils."""
        at = self.work if member is None else self.model.workspace(member, within=self.submodel)
        slope = enter(self.work, at, member, self.trained, self.constrain)
        with self.client.local.autocast(self.model.device):
            logits = self._outputs(at.module, inputs, labels)
            loss = self.loss(logits, labels)
            if teacher is not None and self.model.task.distance is not None:
                apart = self.model.task.distance(logits, teacher, self.client.local.temperature)
                loss = loss + self.client.local.distill * apart
        take_over(self.model, at, member, self.submodel, self.trained, self.constrain)
        gradients = _of_their_own(at.parameters, torch.autograd.grad(loss, at.parameters, allow_unused=True))
        if self.observe is not None:
            self.observe(Step(at.module, inputs, labels, gradients, self.loss, member))
        if member is not None and at is not self.work:
            gradients = spread_out(gradients, member, self.work.layout)
        if slope is not None:
            torch._foreach_mul_(gradients, self.work.layout.views(slope))
        return _Pass(gradients, loss.detach(), logits.detach())

    def _outputs(self, module: nn.Module, inputs: Inputs, labels: Tensor) -> Tensor:
        """The module's outputs of a batch, checked."""
        try:
            outputs = forward(module, copied(inputs) if self.model.rewrites_inputs else inputs)
        except (RuntimeError, TypeError, IndexError) as error:
            if (why := misfit(error, inputs, self.model.example)) is None:
                raise
            raise ValueError(f"client {self.client.id}: {why}") from error
        check_outputs(outputs, labels, self.largest)
        return outputs


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
        made = data.batch(batch, augment)
        check_inputs("in training", made, len(batch))
        yield model.place(made), data.labels[batch].to(model.device)


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
