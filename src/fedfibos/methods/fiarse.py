"""FIARSE: every client holds the ⌈γd⌉ parameters of the largest magnitude.

The mask is 1{|x| ≥ θ} with θ, the magnitude of the smallest parameter that is held, fixed within a round; it is
evaluated anew at every local step, so a parameter that shrinks below θ leaves the submodel (for the round, unless
momentum or decay of an optimiser still moves it).
The derivative of the mask is replaced by that of clip((|x| − θ)/(|x| + θ), 0, 1), which gives the gradient the factor
1 + 2|x|θ/(|x| + θ)² on the mask (threshold-controlled biased gradient descent, TCB-GD).

References:
    Wu, Wang, Wang, Liu, Su, Gao. FIARSE: Model-Heterogeneous Federated Learning via Importance-Aware Submodel
    Extraction. NeurIPS 2024. arXiv:2407.19389. Code: github.com/HarliWu/FIARSE at 281519c.

Training in the paper's experiments (settings of an experiment, not of the method):
    CIFAR: SGD, lr 0.1, no momentum or decay, 100 steps of batch 20, batch normalisation; 10 of 100 clients, 800 rounds.
    AGNews: AdamW, lr 1e-4, betas (0.9, 0.95), 2 epochs of batch 20; 20 of 200 clients, 300 rounds.
    Capacities are shares of the parameters, fixed per client.

Deviations:
    - The released mask function returns booleans, which autograd does not differentiate: the factor never takes effect
      there, the code trains with the gradient on the mask alone. ``gradient = "masked"`` is that, and so is
      ``PRESETS["released"]``; the default is the paper's rule.
    - The released server counts as holders the clients whose update is not 0 at a coordinate, so a held parameter
      without gradient is averaged over fewer clients. ``holders = "moved"`` is that; the default counts who held it.
    - ⌈γd⌉ parameters as in the other methods; ⌊γd⌋ as released with ``rounding = "floor"``. Exactly as many: of equal
      magnitudes the first positions, where the released code holds all of them.
    - A client of capacity 1 has θ = 0, hence plain training (the released RoBERTa; its ResNet has θ = min |x|).
    - Clients receive only what they hold; the released code sends everything and masks in the forward pass. The
      updates are the same, as nothing moves outside the mask.
    - The released layer-wise variant ranks within the six stages of a ResNet: ``groups`` names such stages;
      ``scope = "layer"`` ranks within every tensor.
    - The released RoBERTa holds the head and the token types whole and ranks in three groups: ``model.held`` and
      ``groups`` do that (experiments/small/ag_news-readings.toml); the default ranks all maskable parameters together.
    - Evaluation is the library's: the released code normalises with the statistics of test batches ordered by client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedfibos.aggregate import Average, Sums
from fedfibos.backend.topk import top_k
from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.local import local_training
from fedfibos.model import Model
from fedfibos.params import Layout, Params
from fedfibos.submodel import Mask, Submodel, budget, exactly, full, layer_budgets
from fedfibos.types import Client, State, Upload

_SMALLEST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class FIARSE:
    """Magnitude submodels whose mask follows the weights within a round.

    Attributes:
        gradient: ``tcb``: the factor 1 + 2|x|θ/(|x| + θ)² on the mask; ``masked``: 1 on the mask.
        scope: ``global`` ranks all d coordinates together; ``layer`` gives every tensor its share.
        groups: Prefixes of tensor names, for ``scope = "global"``: tensors that begin with the same (longest) prefix
            are ranked together, and so are all others. Every group keeps the share γ of its own.
        rounding: k is ⌈γd⌉ (``ceil``) or ⌊γd⌋, at least 1 (``floor``).
        holders: Who counts as a holder of a coordinate: ``mask``, or ``moved``: whose update is not 0 there.
        average: What the sum of the updates of a coordinate is divided by: the weight of its ``holders``, or of all
            ``participants``.
        server_lr: The server's learning rate η_s: a factor of the averaged update.
    """

    gradient: Literal["tcb", "masked"] = "tcb"
    scope: Literal["global", "layer"] = "global"
    groups: tuple[str, ...] = ()
    rounding: Literal["ceil", "floor"] = "ceil"
    holders: Literal["mask", "moved"] = "mask"
    average: Average = "holders"
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "server_lr")
        if isinstance(self.groups, str):
            raise ValueError(f"groups must be prefixes, ({self.groups!r},) for one, got {self.groups!r}")
        if self.groups and self.scope == "layer":
            raise ValueError(f"groups need scope = 'global', got scope = 'layer' and groups {self.groups}")

    @property
    def personal(self) -> bool:
        """No: magnitudes are the same for all."""
        return False

    def init(self, params: Params) -> State:
        """FIARSE keeps nothing but the parameters."""
        return State()

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The largest magnitudes of every ranked group."""
        ranked = self._ranked(model.layout, client.capacity)
        if all(k == sum(stop - start for start, stop in group) for group, k in ranked):
            return full(model.layout)
        magnitude = params.flat.abs()
        held = torch.ones(model.layout.size, dtype=torch.bool, device=magnitude.device)
        for group, k in ranked:
            scores = torch.cat([magnitude[start:stop] for start, stop in group])
            chosen, first = top_k(scores, k), 0
            for start, stop in group:
                held[start:stop] = chosen[first : first + stop - start]
                first += stop - start
        return Mask(held, int(held.sum()))

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Local steps on x ⊙ 1{|x| ≥ θ}."""
        if submodel.held is None:
            upload = local_training(model, params, submodel, client)
        else:
            threshold = self._threshold(params, submodel.held, client.capacity)

            def constrain(values: Tensor) -> tuple[Tensor, Tensor]:
                return masked(values, threshold, self.gradient)

            upload = local_training(model, params, submodel, client, constrain=constrain)
        return replace(upload, counted=upload.delta != 0) if self.holders == "moved" else upload

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """Nothing is kept of a client."""
        return state

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """x ← x − η_s · mean Δ."""
        return state, sums.server_step(params, self.average, self.server_lr)

    def _threshold(self, params: Params, held: Tensor, capacity: float) -> Tensor:
        """θ of every coordinate, shape (size,): the smallest held magnitude of its group; 0 where nothing is ranked.

        A client derives it from the values it receives, so nothing else is sent.
        """
        threshold = torch.zeros_like(params.flat)
        magnitude = torch.where(held, params.flat.abs(), math.inf)
        for group, _ in self._ranked(params.layout, capacity):
            smallest = torch.stack([magnitude[start:stop].min() for start, stop in group]).min()
            for start, stop in group:
                threshold[start:stop] = smallest
        return threshold

    def _ranked(self, layout: Layout, capacity: float) -> list[tuple[list[tuple[int, int]], int]]:
        """What is ranked together: ``(start, stop)`` of its tensors, and how many coordinates it keeps."""
        if self.scope == "layer":
            if self.rounding == "ceil":
                counted = zip(layout.maskable(), layer_budgets(capacity, layout), strict=True)
                return [([(start, stop)], count) for (_, start, stop), count in counted if stop > start]
            spans = [[(start, stop)] for _, start, stop in layout.maskable() if stop > start]
        else:
            by_prefix: dict[str, list[tuple[int, int]]] = {}
            for name, start, stop in layout.maskable():
                prefix = max((p for p in self.groups if name.startswith(p)), key=len, default="")
                if stop > start:
                    by_prefix.setdefault(prefix, []).append((start, stop))
            named = [name for name, _, _ in layout.maskable()]
            if unused := [p for p in self.groups if not any(name.startswith(p) for name in named)]:
                raise ValueError(f"group {unused[0]!r} begins no maskable tensor of the model")
            spans = list(by_prefix.values())
        sizes = [sum(stop - start for start, stop in group) for group in spans]
        return [(group, self._count(capacity, size)) for group, size in zip(spans, sizes, strict=True)]

    def _count(self, capacity: float, size: int) -> int:
        """k of a group of ``size`` coordinates."""
        return budget(capacity, size) if self.rounding == "ceil" else max(1, math.floor(exactly(capacity) * size))


def masked(values: Tensor, threshold: Tensor, gradient: Literal["tcb", "masked"]) -> tuple[Tensor, Tensor]:
    """Effective weights x·1{|x| ≥ θ}, and what multiplies their gradient.

    With s = θ/(|x| + θ) the factor of TCB-GD is 1 + 2s(1 − s): 1.5 at |x| = θ, towards 1 for |x| ≫ θ.

    Args:
        values: x, any shape.
        threshold: θ, of the same shape.
        gradient: As in :class:`FIARSE`.
    """
    magnitude = values.abs()
    kept = (magnitude >= threshold).to(values.dtype)
    effective = values * kept
    if gradient == "masked":
        return effective, kept
    # In place where it can be: this runs at every step, over all parameters.
    share = threshold / magnitude.add_(threshold).clamp_min_(_SMALLEST)  # 0/0 where θ = x = 0
    del magnitude
    return effective, (1 - share).mul_(share.mul_(2)).add_(1).mul_(kept)


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"gradient": "tcb", "holders": "mask", "average": "holders", "rounding": "floor"},
    "released": {"gradient": "masked", "holders": "moved", "average": "holders", "rounding": "floor"},
}
