"""Fisher information of channel gates: one round's estimate, from the gradients of local training."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfibos.channels.readers import GateSum, readers
from fedfibos.local import Step
from fedfibos.model import Model
from fedfibos.submodel import Submodel


class GateObserver:
    """Averages squared gate derivatives over local training.

    f̂_c = (1/K) Σ_k B_k (∂L_k/∂m_c)², L_k the mean loss of a batch of B_k examples: near a minimum, where examples'
    derivatives have mean 0, its expectation is that of one example's square, whatever the size of the batch.
    """

    def __init__(self, model: Model, submodel: Submodel) -> None:
        self.names, widths = model.layout.names, dict(submodel.widths or ())
        self._sum = GateSum(readers(model.module, model.axes), model.axes, self.names, widths)
        self.total = torch.zeros(self._sum.num_units, device=model.device)
        self.steps = torch.zeros((), device=model.device)  # a tensor: a replayed step runs no Python

    def __call__(self, step: Step) -> None:
        """Add one local step."""
        named = dict(step.module.named_parameters())
        gates = self._sum([named[name] for name in self.names], step.gradients)
        self.total.addcmul_(gates, gates, value=len(step.labels))
        self.steps.add_(1.0)

    def estimate(self) -> Tensor:
        """f̂ of every channel that the submodel holds, axis after axis; float32."""
        return self.total / self.steps.clamp_min(1.0)
