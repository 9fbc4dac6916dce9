"""Local training: K optimiser steps on a submodel. Every method trains through this one function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedfibos.model import Model, Workspace
from fedfibos.params import Params
from fedfibos.submodel import Mask, Submodel
from fedfibos.types import Client, Inputs, Upload


@dataclass(frozen=True)
class Step:
    """One local step, as an observer sees it before the update.

    Attributes:
        module: The model at the effective weights.
        inputs: The batch.
        labels: Its classes.
        gradients: Of the batch's mean loss, with respect to the effective weights, unmasked, in layout order.
        loss: (scores, labels) -> mean loss.
    """

    module: nn.Module
    inputs: Inputs
    labels: Tensor
    gradients: Sequence[Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]


Observe = Callable[[Step], None]
"""Called once a step, before the update."""

Constrain = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Trainable values -> (effective weights, slope): the forward pass uses the first, the gradient is
multiplied by the second. Both have the local vector's shape."""


class LocalTrainingError(ValueError):
    """A client cannot train; the round rejects it, names it and goes on."""


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in one round.

    Attributes:
        steps: Number of optimiser steps K, each on a full batch; exactly one of steps and epochs is set.
        epochs: Passes over the client's data; the last batch may be smaller.
        batch_size: Examples a step; a client with fewer uses all it has.
        optimizer: ``sgd`` or ``adamw``; its state starts afresh every round.
        lr: Learning rate (at round 0, before the schedule).
        momentum: SGD's momentum.
        weight_decay: SGD's L2 penalty, AdamW's decoupled decay.
        betas: AdamW's moment rates.
        clip_norm: Largest L2 norm of a step's gradient; 0 for no clipping.
        schedule: Of the learning rate over rounds: ``constant``, ``cosine`` (to 0 at the last round) or
            ``milestones`` (times ``decay`` at each).
        milestones: Rounds at which ``milestones`` decays.
        decay: Factor of ``milestones``.
        absent_labels: ``keep``, or ``mask``: the scores of classes that the client has no example of are
            set to 0 before the loss (HeteroFL's masked cross-entropy).
        precision: ``float32``, or ``bfloat16`` autocast with float32 weights, sums and optimiser.
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int = 20
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    clip_norm: float = 0.0
    schedule: Literal["constant", "cosine", "milestones"] = "constant"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    absent_labels: Literal["keep", "mask"] = "keep"
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        """Check every field."""
        if self.steps is None and self.epochs is None:
            object.__setattr__(self, "epochs", 1)
        elif self.steps is not None and self.epochs is not None:
            raise ValueError(f"set steps or epochs, not both, got steps={self.steps} and epochs={self.epochs}")
        for name in ("steps", "epochs", "batch_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr must be a positive number, got {self.lr}")
        for name in ("momentum", "weight_decay", "clip_norm"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be 0 or a positive number, got {getattr(self, name)}")

    def at_round(self, t: int, rounds: int) -> LocalTraining:
        """The settings of round t of ``rounds``: the learning rate after the schedule."""
        if self.schedule == "cosine":
            return replace(self, lr=max(self.lr * 0.5 * (1 + math.cos(math.pi * t / rounds)), 1e-12))
        if self.schedule == "milestones":
            return replace(self, lr=self.lr * self.decay ** sum(t >= m for m in self.milestones))
        return self

    def num_steps(self, num_examples: int, drop_single: bool = False) -> int:
        """Optimiser steps that a client with that many examples makes."""
        if self.steps is not None:
            return self.steps
        full, rest = divmod(num_examples, self.batch_size)
        return (self.epochs or 0) * (full + (rest > (1 if drop_single else 0)))


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
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Run a block (dropout) on its own random stream and leave torch's global stream as it was."""
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.manual_seed(seed)
        yield


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
    zero off the mask.

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
        raise LocalTrainingError(f"client {client.id} has no training example, wanted at least 1")
    work = model.workspace(submodel)
    if work.has_batch_norm and min(len(data), local.batch_size) == 1:
        raise LocalTrainingError(
            f"client {client.id} trains on batches of one example, batch normalisation wants at least 2"
        )
    start = submodel.gather(params.flat)
    module = work.load(start)
    module.train()
    trained, parameters = _trainable(work, start, constrain)
    optimizer = _optimizer(local, parameters)
    masks = _gradient_masks(work, submodel)
    loss_of = partial(_loss, present=data.labels.unique() if local.absent_labels == "mask" else None)
    losses = []
    with seeded(client.stream("dropout")):
        shuffle, augment = client.stream("batches"), client.stream("augment")
        for indices in batch_indices(local, len(data), shuffle, work.has_batch_norm):
            slope = None
            if constrain is not None:
                with torch.no_grad():
                    effective, slope = constrain(trained)
                    work.values.copy_(effective)
            inputs = to_device(data.batch(indices, augment), model.device)
            labels = data.labels[indices].to(model.device)
            with torch.autocast(model.device.type, torch.bfloat16, enabled=local.precision == "bfloat16"):
                loss = loss_of(module(inputs), labels)
            gradients = [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(
                    work.parameters,
                    torch.autograd.grad(loss, work.parameters, allow_unused=True),
                    strict=True,
                )
            ]
            if observe is not None:
                observe(Step(module, inputs, labels, gradients, loss_of))
            if masks is not None:
                torch._foreach_mul_(gradients, masks)
            if slope is not None:
                torch._foreach_mul_(gradients, work.layout.views(slope))
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            if local.clip_norm:
                nn.utils.clip_grad_norm_(parameters, local.clip_norm)
            optimizer.step()
            losses.append(loss.detach())
    delta = start.sub_(trained)
    return Upload(submodel, delta, float(torch.stack(losses).mean()), len(losses))


def _trainable(work: Workspace, start: Tensor, constrain: Constrain | None) -> tuple[Tensor, list[nn.Parameter]]:
    """The vector that the optimiser moves, and its tensors: the module's own, unless it is constrained."""
    if constrain is None:
        return work.values, work.parameters
    vector = start.clone()
    return vector, [nn.Parameter(view) for view in work.layout.views(vector)]


def _gradient_masks(work: Workspace, submodel: Submodel) -> list[Tensor] | None:
    """1 on held coordinates, 0 elsewhere, tensor by tensor; None where everything is held."""
    if isinstance(submodel, Mask) and submodel.held is not None:
        return work.layout.views(submodel.held.to(work.values))
    return None


def _optimizer(local: LocalTraining, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """A fresh optimiser. Held coordinates only: a zero gradient at a zero value leaves a coordinate at zero."""
    if local.optimizer == "adamw":
        return torch.optim.AdamW(parameters, local.lr, betas=local.betas, weight_decay=local.weight_decay, fused=True)
    return torch.optim.SGD(parameters, local.lr, momentum=local.momentum, weight_decay=local.weight_decay, fused=True)


def _loss(scores: Tensor, labels: Tensor, *, present: Tensor | None) -> Tensor:
    """Cross-entropy; with ``present`` the other classes' scores are 0 (they stay in the denominator)."""
    if present is not None:
        keep = torch.zeros(scores.shape[1], device=scores.device)
        keep[present.to(scores.device)] = 1.0
        scores = scores * keep
    return cross_entropy(scores.float(), labels)


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """Move a batch; nothing is copied when it is there already."""
    if isinstance(inputs, Tensor):
        return inputs.to(device, non_blocking=True)
    return {name: tensor.to(device, non_blocking=True) for name, tensor in inputs.items()}
