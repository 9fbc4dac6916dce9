"""The paper's theory as functions of tensors: its surrogate, its masking error, its assumptions, its decay.

Vectors are over the d maskable coordinates unless said otherwise; sums are float64. Equation, assumption and
proposition numbers are those of the FedFIbOS paper.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedfibos.backend.topk import top_k
from fedfibos.common.inputs import forward
from fedfibos.local import Step
from fedfibos.methods._fisher import FisherObserver
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Mask, full
from fedfibos.types import Dataset

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, labels) -> mean loss of a batch."""


def surrogate(fisher: Tensor, values: Tensor, mask: Tensor) -> float:
    """ε(S) = Σ_{j∉S} F_j² x̃_j², the quadratic surrogate of the masking error (section Problem Formulation).

    Args:
        fisher: F, shape ``(d,)``, not negative.
        values: x̃, shape ``(d,)``.
        mask: The selection S; bool, shape ``(d,)``.
    """
    _check_scores(fisher, "fisher")
    _check_mask(mask, fisher.shape)
    weighted = fisher.double() * values.double()
    return float(weighted[~mask].square().sum())


def jaccard(mask_a: Tensor, mask_b: Tensor) -> float:
    """|A ∩ B| / |A ∪ B| of two selections, in [0, 1] (the paper's selection agreement).

    Two random selections of share γ have γ/(2−γ) in expectation: .33 at γ = .5, .03 at .0625.

    Args:
        mask_a: bool, shape ``(d,)``.
        mask_b: bool, shape ``(d,)``.

    Returns:
        The Jaccard index; 1 for two empty selections, which are equal.
    """
    _check_mask(mask_a, mask_b.shape)
    _check_mask(mask_b, mask_a.shape)
    union = int((mask_a | mask_b).sum())
    return int((mask_a & mask_b).sum()) / union if union else 1.0


def coefficient_of_variation(scores: Tensor) -> float:
    """std / mean of scores over coordinates (CV_F of the paper), the population's standard deviation.

    Args:
        scores: Any shape, finite and not negative (Fisher scores, magnitudes).

    Returns:
        The coefficient of variation; 0 when all scores are equal, all zero included.

    Raises:
        ValueError: No score, or one that is negative or not finite.
    """
    _check_scores(scores, "scores")
    wide = scores.detach().double()
    if bool((wide == wide.flatten()[0]).all()):
        return 0.0
    return float(wide.std(correction=0) / wide.mean())


def boundary_violations(fisher: Tensor, values: Tensor, k: int) -> float:
    """Share of the pairs across the top-k boundary that violate Assumption 4 (Fisher-dominant ranking).

    A pair (j in, l out) of the Fisher selection violates it when F_j > F_l and yet I_j <= I_l, I = F²x̃². Without a
    violation the Fisher selection solves the submodel selection problem. The k(d−k) pairs are counted by sorting,
    O(d log d).

    Args:
        fisher: F, shape ``(d,)``, not negative.
        values: x̃, shape ``(d,)``.
        k: Size of the selection.

    Returns:
        Violating pairs over k(d−k), in [0, 1]; 0 where there is no pair.
    """
    _check_scores(fisher, "fisher")
    selected = top_k(fisher, k)
    pairs = k * (fisher.numel() - k)
    if pairs == 0:
        return 0.0
    # The order of F²x̃² is that of F·|x̃|, which float64 holds exactly for float32 factors.
    importance = fisher.double() * values.double().abs()
    tied = fisher == fisher[selected].min()  # equal F across the boundary: the assumption says nothing
    count = _pairs_not_above(importance[selected], importance[~selected])
    count -= _pairs_not_above(importance[selected & tied], importance[~selected & tied])
    return count / pairs


def _pairs_not_above(left: Tensor, right: Tensor) -> int:
    """Number of pairs (a of left, b of right) with a <= b."""
    below = torch.searchsorted(right.sort().values, left.contiguous(), right=False)
    return left.numel() * right.numel() - int(below.sum())


def order_agreement(surrogates: Sequence[float], errors: Sequence[float]) -> float:
    """How often the order of ε is the order of the masking error (Assumption 5), over all pairs of selections.

    A pair agrees when ε(S₁) <= ε(S₂) implies e(S₁) <= e(S₂), both ways round. Ordering by chance agrees half the time.

    Args:
        surrogates: ε of each selection; selections that are one and the same set belong in once.
        errors: e_t or δ_t² of each.

    Raises:
        ValueError: Fewer than two selections, or lists of unequal length.
    """
    if len(surrogates) != len(errors) or len(errors) < 2:
        raise ValueError(
            f"wanted ε and e of at least two selections each, got {len(surrogates)} surrogates, {len(errors)} errors"
        )
    pairs = list(itertools.combinations(zip(surrogates, errors, strict=True), 2))
    agreeing = sum((a <= b) <= (e <= f) and (b <= a) <= (f <= e) for (a, e), (b, f) in pairs)
    return agreeing / len(pairs)


def ema_bias(alpha: float, observations: int) -> float:
    """α^r: what is left of the prior in f̄ after r observations (Proposition 2)."""
    _check_rates(alpha, observations)
    return alpha**observations


def ema_bias_partial(alpha: float, participation: float, rounds: int) -> float:
    """(1 − p + pα)^t = E[α^R], R ~ Binomial(t, p): the same after t rounds of participation p = A/N (Proposition 2)."""
    _check_rates(alpha, rounds)
    if not 0.0 <= participation <= 1.0:
        raise ValueError(f"participation must be in [0, 1], got {participation}")
    return (1.0 - participation + participation * alpha) ** rounds


@dataclass(frozen=True)
class MaskingError:
    """True masking error of a submodel, in the two readings of its definition.

    Attributes:
        held: ‖(∇F(x̃) − ∇F(x̃⊙M)) ⊙ M‖², the definition's letter: by the chain rule the gradient of F(x̃⊙M) with
            respect to x̃ is zero off the mask.
        dense: ‖∇F(x̃)⊙M − ∇F(x̃⊙M)‖² with the gradient taken at the effective weights, everywhere: what the
            derivation of the surrogate expands. It adds the gradient off the mask to ``held``.
    """

    held: float
    dense: float


def gradient_discrepancy(gradient: Tensor, masked_gradient: Tensor, mask: Tensor) -> MaskingError:
    """The masking error from two gradients.

    Args:
        gradient: ∇F at x̃.
        masked_gradient: ∇F at x̃⊙M, on all coordinates.
        mask: M; bool, of the same shape.
    """
    _check_mask(mask, gradient.shape)
    difference = torch.where(mask, gradient, 0.0).double() - masked_gradient.double()
    squares = difference.square()
    return MaskingError(float(squares[mask].sum()), float(squares.sum()))


def masking_error(
    model: Model,
    params: Params,
    mask: Mask,
    data: Dataset,
    *,
    gradient: Tensor | None = None,
    batch_size: int = 256,
    loss: Loss = cross_entropy,
) -> MaskingError:
    """e_t of a submodel on a whole data set (section Problem Formulation), exact up to rounding.

    Args:
        model: Architecture and layout.
        params: x̃; all coordinates count, the always-held ones too.
        mask: The submodel.
        data: The client's examples, not augmented.
        gradient: ``dataset_gradient`` at x̃, if it is known already.
        batch_size: Examples a pass; of no influence without batch normalisation.
        loss: F_n is its mean over the data set.
    """
    if mask.held is None:
        return MaskingError(0.0, 0.0)
    if gradient is None:
        gradient = dataset_gradient(model, params, data, batch_size=batch_size, loss=loss)
    masked = dataset_gradient(model, params, data, mask, batch_size=batch_size, loss=loss)
    return gradient_discrepancy(gradient, masked, mask.held)


def masking_coefficient(error: float, values: Tensor) -> float:
    """δ_t² = e_t / ‖x̃‖², the smallest constant of the masking-error bound.

    Assumption 3 as printed bounds ‖∇F(x̃ ⊙ M)‖² by δ²‖x̃‖², not e_t.

    Args:
        error: e_t.
        values: x̃, all coordinates that the error covers; not all zero.
    """
    norm = float(values.double().square().sum())
    if norm == 0.0:
        raise ValueError("δ² = e/‖x̃‖² needs parameters that are not all zero, got ‖x̃‖² = 0")
    return error / norm


def dataset_gradient(
    model: Model,
    params: Params,
    data: Dataset,
    mask: Mask | None = None,
    *,
    batch_size: int = 256,
    loss: Loss = cross_entropy,
) -> Tensor:
    """∇F of the mean loss over a data set at x̃⊙M, for all coordinates; float64, shape ``(size,)``.

    Dropout is off. A batch-normalised model normalises each batch by its own statistics, as in training: F then
    depends on ``batch_size``.
    """
    total = torch.zeros(model.layout.size, dtype=torch.float64, device=model.device)
    for step in one_pass(model, params, data, mask, batch_size, loss):
        flat = torch.cat([gradient.reshape(-1) for gradient in step.gradients])
        total.add_(flat, alpha=len(step.labels) / len(data))
    return total


def dataset_fisher(
    model: Model,
    params: Params,
    data: Dataset,
    source: Literal["minibatch", "per_example"] = "per_example",
    *,
    batch_size: int = 20,
    loss: Loss = cross_entropy,
) -> Tensor:
    """Diagonal Fisher F_n of a data set at x̃ (equation 9's expectation as a mean over all examples).

    Args:
        model: Architecture and layout.
        params: x̃, unmasked.
        data: The client's examples, not augmented.
        source: ``per_example``: mean of squared per-example gradients; ``minibatch``: squared minibatch gradients
            over the batch size (Algorithm 1, line 14).
        batch_size: Examples a pass; part of the definition of ``minibatch``, memory for ``per_example``.
        loss: Of a batch of logits.

    Returns:
        float32, shape ``(d,)``.
    """
    observer = FisherObserver(model, source)
    for step in one_pass(model, params, data, None, batch_size, loss):
        observer(step)
    return observer.estimate()


def one_pass(
    model: Model, params: Params, data: Dataset, mask: Mask | None, batch_size: int, loss: Loss
) -> Iterator[Step]:
    """Every example once, in batches of nearly equal size (so that none has a single example), with gradients."""
    if len(data) == 0:
        raise ValueError("the data set must have at least one example, got none")
    submodel = full(model.layout) if mask is None else mask
    work = model.workspace(submodel)
    module = work.load(submodel.gather(params.flat))
    module.eval()
    for child in module.modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            child.train()
    for indices in torch.arange(len(data)).tensor_split(math.ceil(len(data) / batch_size)):
        inputs = model.place(data.batch(indices))
        labels = data.labels[indices].to(model.device)
        value = loss(forward(module, inputs), labels)
        gradients = torch.autograd.grad(value, work.parameters, allow_unused=True, materialize_grads=True)
        yield Step(module, inputs, labels, gradients, loss)


def _check_mask(mask: Tensor, shape: torch.Size) -> None:
    """Raise ValueError unless bool and of that shape."""
    if mask.dtype != torch.bool or mask.shape != shape:
        raise ValueError(f"mask must be bool of shape {tuple(shape)}, got {mask.dtype} {tuple(mask.shape)}")


def _check_scores(scores: Tensor, name: str) -> None:
    """Raise ValueError unless there are scores, all finite and none negative."""
    if scores.numel() == 0:
        raise ValueError(f"{name} must not be empty, got shape {tuple(scores.shape)}")
    bad = ~(torch.isfinite(scores) & (scores >= 0))
    if bool(bad.any()):
        raise ValueError(
            f"{name} must be finite and not negative, got {int(bad.sum())} of {scores.numel()} that are not"
        )


def _check_rates(alpha: float, count: int) -> None:
    """Raise ValueError unless α is in [0, 1) and the count is not negative."""
    if not 0.0 <= alpha < 1.0:
        raise ValueError(f"alpha must be in [0, 1), got {alpha}")
    if count < 0:
        raise ValueError(f"the number of observations or rounds must be 0 or positive, got {count}")
