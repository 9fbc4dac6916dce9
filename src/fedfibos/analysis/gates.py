"""The theory of channel gates: their Fisher information, and what leaving a channel out really costs.

A gate m = 1 stands on every channel. Under the labels that the model itself expects, the divergence of its outputs from
those at m = 1 − δ is ½ δ² F(m) + O(δ³), whose value at δ = 1 is ½ F(m): the second-order cost of the channel. Under the
labels of a data set F is the empirical one, and what a channel costs has a term of first order too, which is 0 at a
minimum.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedfibos.analysis.accuracy import recalibrate
from fedfibos.analysis.theory import Loss, one_pass
from fedfibos.channels.readers import GateSum, readers
from fedfibos.common.inputs import forward
from fedfibos.common.norms import keeps_statistics
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel, full
from fedfibos.types import Dataset


def gate_fisher(
    model: Model, params: Params, data: Dataset, *, batch_size: int = 1, loss: Loss = cross_entropy
) -> Tensor:
    """F(m) of every channel's gate: the mean of (∂L/∂m)² over a data set; float64, shape ``(channels,)``.

    Args:
        model: Architecture, layout and axes.
        params: x̃, the whole model's.
        data: The examples, not augmented.
        batch_size: 1: of single examples. More, as batch normalisation needs: batches count by their mean loss, times
            their size, as in training.
        loss: Of a batch of logits.
    """
    gates = GateSum(readers(model.module, model.axes), model.axes, model.layout.names, {})
    total = torch.zeros(gates.num_units, dtype=torch.float64, device=model.device)
    for step in one_pass(model, params, data, None, batch_size, loss):
        named = dict(step.module.named_parameters())
        derivatives = gates([named[name] for name in model.layout.names], step.gradients)
        total += len(step.labels) ** 2 / len(data) * derivatives.double().square()
    return total


def removal_costs(model: Model, params: Params, data: Dataset, *, loss: Loss = cross_entropy) -> Tensor:
    """How much the loss of a data set rises where one channel alone is left out; float64, shape ``(channels,)``.

    Args:
        model: Architecture, layout and axes; without layers that normalise over the batch.
        params: x̃, the whole model's.
        data: The examples, not augmented, in one batch.
        loss: Of a batch of logits.
    """
    costs, whole = [], loss_of_submodel(model, params, full(model.layout), data, loss)
    for axis, size in model.axes.sizes.items():
        for channel in range(size):
            left = torch.tensor([other for other in range(size) if other != channel])
            piece = model.axes.slice(model.layout, {axis: left}).to(model.device)
            costs.append(loss_of_submodel(model, params, piece, data, loss) - whole)
    return torch.tensor(costs, dtype=torch.float64)


def loss_of_submodel(model: Model, params: Params, submodel: Submodel, data: Dataset, loss: Loss) -> float:
    """The loss of a data set, in one batch, under a submodel in evaluation mode."""
    return float(loss(logits_of_submodel(model, params, submodel, data), data.labels.to(model.device)))


@torch.no_grad()
def logits_of_submodel(model: Model, params: Params, submodel: Submodel, data: Dataset) -> Tensor:
    """The outputs of a submodel in evaluation mode on a data set, in one batch; float64, shape ``(n, classes)``.

    Statistics of normalisation are recomputed on the data set, with the layers' inputs as they are in this submodel.
    """
    module = model.workspace(submodel).load(submodel.gather(params.flat)).eval()
    if keeps_statistics(module):
        recalibrate(module, data, model.place)
    return forward(module, model.place(data.batch(torch.arange(len(data))))).double()
