"""The empirical diagonal Fisher: one round's estimate, and its exponential moving average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedfibos.backend.reductions import all_true, chosen, indicator
from fedfibos.common.inputs import Inputs
from fedfibos.common.norms import has_batch_norm
from fedfibos.local import LocalTrainingError, Step
from fedfibos.model import Model
from fedfibos.submodel import Submodel


class PerExampleError(ValueError):
    """A model of which torch gives no gradients of single examples."""


class FisherObserver:
    """Accumulates squared gradients over local training.

    f̂ = (1/KB) Σ_k g_k² from minibatch gradients (Algorithm 1, line 14), or (1/KB) Σ_k Σ_b g_{k,b}² from
    per-example ones (equation 9). They are different statistics. Gradients are those at the effective (masked)
    weights, for all maskable coordinates.
    """

    def __init__(self, model: Model, source: Literal["minibatch", "per_example"]) -> None:
        if source == "per_example" and has_batch_norm(model.module):
            raise LocalTrainingError(
                "fisher_from = 'per_example' needs a model without batch normalisation "
                "(an example's gradient depends on its batch there), got one with it"
            )
        self.source = source
        self.names = model.layout.names
        self.num_tensors = model.layout.num_maskable_tensors
        self.empty = True
        self.num_examples = torch.zeros((), device=model.device)  # a tensor: a replayed step runs no Python
        self.sum = torch.empty(model.layout.num_maskable, device=model.device)  # the first step fills it
        self.views = model.layout.maskable_views(self.sum)

    def __call__(self, step: Step) -> None:
        """Add one local step."""
        self.num_examples.add_(len(step.labels))
        if self.source == "minibatch":
            gradients = list(step.gradients[: self.num_tensors])
            if self.empty:
                for view, gradient in zip(self.views, gradients, strict=True):
                    torch.mul(gradient, gradient, out=view)
            else:
                torch._foreach_addcmul_(self.views, gradients, gradients)
        else:
            for view, gradient in zip(self.views, self._per_example(step), strict=True):
                squares = gradient.square()
                torch.sum(squares, 0, out=view) if self.empty else view.add_(squares.sum(0))
        self.empty = False

    def estimate(self, submodel: Submodel | None = None) -> Tensor:
        """f̂, float32, shape ``(d,)``; of a mask 0 where it holds nothing. Takes the sum's own memory: ask once."""
        if self.empty:
            return self.sum.zero_()
        estimate = self.sum.div_(self.num_examples.clamp_min(1))
        if submodel is None or submodel.indicator is None:
            return estimate
        return estimate.mul_(submodel.indicator[: estimate.numel()])

    def _per_example(self, step: Step) -> list[Tensor]:
        """Gradient of every example's own loss, per maskable tensor; shape (B, *shape)."""
        values = {name: p.detach() for name, p in step.module.named_parameters()}
        wanted = {name: values.pop(name) for name in self.names[: self.num_tensors]}

        def loss(wanted: dict[str, Tensor], inputs: Inputs, label: Tensor) -> Tensor:
            one = _unsqueeze(inputs)
            arguments = ((one,), None) if isinstance(one, Tensor) else ((), one)
            logits = functional_call(step.module, {**values, **wanted}, *arguments)
            return step.loss(logits, label.unsqueeze(0))

        try:
            gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(wanted, step.inputs, step.labels)
        except RuntimeError as error:  # layers that torch cannot map over examples, recurrent ones say
            raise PerExampleError(
                f"gradients of single examples cannot be taken through this model ({str(error).splitlines()[0]}); "
                'fisher_from = "minibatch" needs none'
            ) from error
        return [gradients[name] for name in self.names[: self.num_tensors]]


def _unsqueeze(inputs: Inputs) -> Inputs:
    """A batch of one."""
    if isinstance(inputs, Tensor):
        return inputs.unsqueeze(0)
    return {name: tensor.unsqueeze(0) for name, tensor in inputs.items()}


def check_average(ema_rate: float, blend: float) -> None:
    """Raise ValueError unless α is in [0, 1) and β, the client's part in a blend, in [0, 1]."""
    if not 0.0 <= ema_rate < 1.0:
        raise ValueError(f"ema_rate must be in [0, 1), got {ema_rate}")
    if not 0.0 <= blend <= 1.0:
        raise ValueError(f"blend must be in [0, 1], got {blend}")


@dataclass(frozen=True)
class Ema:
    """f̄ ← α f̄ + (1 − α) f̂ on the observed coordinates (equation 11), stored as one vector.

    With a warm start the vector is f̄ alone, shape ``(d,)``, and f̄⁰ = |x̃₀|. Without one, it is the bias-corrected
    average, as in Adam, followed by the evidence behind it, e = 1 − α^r after r observations: one number, or one per
    coordinate where coordinates are observed apart. Then f̄ moves towards f̂ by (1 − α) / e, all the way at first.

    Attributes:
        rate: α in [0, 1).
        warm: Start from the magnitude.
        per_coordinate: Evidence per coordinate.
    """

    rate: float
    warm: bool
    per_coordinate: bool

    def start(self, magnitude: Tensor) -> Tensor:
        """The vector before any observation."""
        d = magnitude.numel()
        return magnitude.clone() if self.warm else magnitude.new_zeros(d + (d if self.per_coordinate else 1))

    def step(self, vector: Tensor, estimate: Tensor, observed: Tensor | None) -> Tensor:
        """The vector after one observation.

        Args:
            vector: From :meth:`start` or an earlier step; not changed.
            estimate: f̂, shape ``(d,)``.
            observed: bool, shape ``(d,)``; None: everywhere.
        """
        if self.warm:
            moved = vector * self.rate + estimate * (1.0 - self.rate)
            return moved if observed is None else chosen(observed, moved, vector)
        if observed is not None and all_true(observed):
            observed = None
        d = estimate.numel()
        moved = torch.empty_like(vector)
        score, evidence = moved[:d], torch.mul(vector[d:], self.rate, out=moved[d:]).add_(1.0 - self.rate)
        weight = evidence.reciprocal().mul_(1.0 - self.rate)
        if observed is not None:
            seen = observed if self.per_coordinate else observed.any().unsqueeze(0)
            chosen(seen, evidence, vector[d:])
            weight = weight * indicator(observed)
        torch.lerp(vector[:d], estimate, weight.expand(d), out=score)
        return moved

    def importance(self, vector: Tensor, d: int) -> tuple[Tensor, Tensor | None]:
        """``(f̄ bias-corrected, observed)``: shapes ``(d,)`` and bool ``(d,)`` or None where all are."""
        if self.warm or bool(vector[d:].amin() > 0):
            return vector[:d], None
        return vector[:d], (vector[d:] > 0).expand(d)
