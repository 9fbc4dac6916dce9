"""Fisher information of channel gates: one round's estimate, from the gradients of local training."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedfibos.channels.readers import GateSum, readers
from fedfibos.local import Step
from fedfibos.model import Model
from fedfibos.submodel import Submodel
from fedfibos.types import NO_ESTIMATE

LeftOut = Literal["zero", "none"]
"""What a nested step is of a channel that it leaves out: ``zero`` or ``none``; see :class:`GateObserver`."""


class GateObserver:
    """Averages squared gate derivatives over local training.

    f̂_c = (1/K) Σ_k B_k (∂L_k/∂m_c)², L_k the mean loss of a batch of B_k examples: near a minimum, where examples'
    derivatives have mean 0, its expectation is that of one example's square, whatever the size of the batch.

    A nested step (``local.nested``) trains a smaller slice. Its loss does not move with the gate of a channel that it
    leaves out: ``zero`` counts that, and f̂ is of the family's mean loss, of the submodels as they are drawn. With
    ``none`` it is no evidence: f̂ is of the steps that held the channel.
    """

    def __init__(self, model: Model, submodel: Submodel, left_out: LeftOut = "zero") -> None:
        self.names, self.left_out = model.layout.names, left_out
        self._axes, self._readers = model.axes, readers(model.module, model.axes)
        self._widths = submodel.widths
        self._sums = {self._widths: self._sum_of(self._widths)}
        self.total = torch.zeros(self._sums[self._widths].num_units, device=model.device)
        self.steps = torch.zeros_like(self.total)  # a tensor: a replayed step runs no Python

    def __call__(self, step: Step) -> None:
        """Add one local step."""
        widths = self._widths if step.member is None else step.member.widths
        if widths not in self._sums:
            self._sums[widths] = self._sum_of(widths)
        named = dict(step.module.named_parameters())
        squares = self._sums[widths]([named[name] for name in self.names], step.gradients).square_()
        if step.member is None or step.member.units is None:
            self.total.add_(squares, alpha=len(step.labels))
            self.steps.add_(1.0)
            return
        self.total.index_add_(0, step.member.units, squares, alpha=len(step.labels))
        if self.left_out == "zero":
            self.steps.add_(1.0)
        else:
            self.steps.index_add_(0, step.member.units, torch.ones_like(squares))

    def estimate(self) -> Tensor:
        """f̂ of every channel that the submodel holds, axis after axis; float32."""
        return torch.where(self.steps > 0, self.total / self.steps.clamp_min(1.0), NO_ESTIMATE)

    def _sum_of(self, widths: tuple[tuple[str, int], ...] | None) -> GateSum:
        return GateSum(self._readers, self._axes, self.names, dict(widths or ()))
