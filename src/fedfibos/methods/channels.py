"""FedFIbOS on channels: every client holds the channels whose gates have the most Fisher information for their cost.

On every channel of every axis stands a gate m = 1, where the channel's values enter the layers that read them. To leave
the channel out is m: 1 → 0, which raises the loss by ½ F(m) to second order, F(m) = E[(∂L/∂m)²]; on gates the criteria
F, F²x² and F x² of the scalar method are one. ∂L/∂m = Σ x·∂L/∂x over the weights that multiply the channel, so local
training gives it without another pass. The server keeps a moving average of each and leaves channels out one by one,
the one of least score for what it saves first: every capacity is a point on that chain, so submodels are nested, and
axes are cut as unequally as their scores ask.

References:
    This library. The score: Liu, Zhang, Kuang, Zhou, Xue, Wang, Chen, Yang, Liao, Zhang. Group Fisher Pruning for
    Practical Network Compression. ICML 2021. arXiv:2108.00708. Molchanov, Mallya, Tyree, Frosio, Kautz. Importance
    Estimation for Neural Network Pruning. CVPR 2019. arXiv:1906.10771. Slices and their averages: HeteroFL, see there.

Deviations:
    - Liu et al. prune one network once, each score over the memory that its channel saves, from gradients of single
      examples. Here every round has a network for each budget, savings are of that budget, and scores are those of
      minibatches, averaged over clients and rounds.
    - HeteroFL's scaler is left out: a slice is trained as it is used.
    - Channels that no client holds are not estimated and keep their score; ones that nobody has ever held rank last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedfibos.aggregate import Average, Sums
from fedfibos.channels.nested import UNSEEN
from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.local import local_training
from fedfibos.method import Idle
from fedfibos.methods._fisher import Ema, check_average
from fedfibos.methods._gates import GateObserver, LeftOut
from fedfibos.methods._slicing import costs_of, prefix, slice_of, width_of
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel, full
from fedfibos.types import Client, State, Upload


@dataclass(frozen=True)
class FedFIbOSChannels:
    """Slices of the channels with the highest Fisher information.

    Attributes:
        sharing: ``shared``: one score for all; ``client``: one per client; ``blend``: both.
        blend: β in [0, 1], the client's part in a blend: β·f̄(n) + (1−β)·f̄(shared).
        scope: ``global``: all channels compete for the budget; ``layer``: every axis keeps the same share of its
            channels, as in HeteroFL, the best ones.
        criterion: Which channels an axis keeps: those of the highest scores (``fisher``), or equally many, but the
            ``first`` ones. The latter is a control.
        start: What clients hold before the first estimate. ``prefix``: the first channels, every axis in the same
            proportion (HeteroFL's slices). ``estimate``: everything. Then nothing of a pretrained model is cut before
            the first estimates, and all clients need memory for the whole model in that round.
        left_out: How a nested step (``local.nested``) counts for a channel that it leaves out: as a derivative of 0
            (``zero``), or not at all (``none``).
        every: Rounds between selections; where clients have scores of their own, a client's is looked at in those of
            these rounds in which it takes part.
        hysteresis: A channel is ranked by its last score until the score has changed by more than this share.
        average: What the sum of the updates of a coordinate is divided by: the weight of its ``holders``, or of all
            ``participants``.
        ema_rate: Rate α of the moving average f̄, in [0, 1): f̄ becomes α f̄ + (1 − α) f̂.
        server_lr: The server's learning rate η_s: a factor of the averaged update.
    """

    sharing: Literal["shared", "client", "blend"] = "shared"
    blend: float = 0.2
    scope: Literal["global", "layer"] = "global"
    criterion: Literal["fisher", "first"] = "fisher"
    start: Literal["prefix", "estimate"] = "prefix"
    left_out: LeftOut = "zero"
    every: int = 1
    hysteresis: float = 0.0
    average: Average = "holders"
    ema_rate: float = 0.95
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "server_lr")
        check_average(self.ema_rate, self.blend)
        if self.every < 1:
            raise ValueError(f"every must be at least 1, got {self.every}")
        if self.hysteresis < 0.0:
            raise ValueError(f"hysteresis must be 0 or positive, got {self.hysteresis}")

    @property
    def personal(self) -> bool:
        """Whether slices follow the client."""
        return self.sharing != "shared"

    def cautions(self, model: Model, capacities: Sequence[float]) -> list[str]:
        """Channels that nobody ever estimates."""
        if max(capacities) == 1.0 or self.start == "estimate":
            return []
        return [
            f"no client holds the whole model (largest capacity {max(capacities):g}): channels outside the first slice "
            'are never estimated; method.start = "estimate" estimates all of them in the first round'
        ]

    def num_units(self, model: Model) -> int:
        """Channels of all axes."""
        return model.axes.num_units

    def init(self, params: Params) -> State:
        """No evidence yet; how many channels there are shows in the first round."""
        return State({"score": torch.zeros(0), "round": torch.zeros((), dtype=torch.int64)})

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """The channels that the client's budget affords, by the scores as they stand."""
        axes, ranked = model.axes, self._ranked(state, client)
        if client.capacity == 1.0 or (ranked is None and self.start == "estimate"):
            return full(model.layout)
        costs = costs_of(model, client, self.train, scored=True)
        if ranked is None:
            return prefix(model, client.capacity, costs=costs)
        width = width_of(model, client.capacity, "parameters", costs)  # also checks that the capacity can be met
        if self.scope == "layer":
            split = zip(axes.widths(width).items(), ranked.split(list(axes.sizes.values())), strict=True)
            kept = {axis: of.sort(descending=True, stable=True).indices[:n].sort().values for (axis, n), of in split}
        else:
            kept = model.chain(ranked, costs).kept(client.capacity)
        if self.criterion == "first":
            kept = {axis: torch.arange(len(chosen)) for axis, chosen in kept.items()}
        return slice_of(model, {axis: torch.as_tensor(chosen) for axis, chosen in kept.items()})

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Local training, squaring the derivatives of the gates on the way."""
        observer = GateObserver(model, submodel, self.left_out)
        upload = local_training(model, params, submodel, client, observe=observer)
        observed = self.observes(model, client.round)
        return upload if observed is None else replace(upload, statistic=observer.estimate(), observed=observed)

    def observes(self, model: Model, t: int) -> Literal["units"] | None:
        """Every round's uploads have estimates of channels, where the model has any."""
        return "units" if model.axes.sizes else None

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """The participant's own average, where each client has one; and which round it is."""
        state = state.with_tensors(round=torch.tensor(client.round))
        if self.sharing == "shared" or upload.statistic is None:
            return state
        row = state.rows.get(client.id)
        return state.with_row(client.id, self._moved(row, *_of_all_units(upload), client.round))

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """The shared average of the participants' mean estimates, and x ← x − η_s · mean Δ."""
        if self.sharing != "client" and (mean := sums.mean_statistic()) is not None:
            score = self._moved(state.tensors["score"], *mean, int(state.tensors["round"]))
            state = state.with_tensors(score=score)
        return state, sums.server_step(params, self.average, self.server_lr)

    def _moved(self, track: Tensor | None, estimate: Tensor, observed: Tensor, t: int) -> Tensor:
        """f̄, its evidence, and the score that channels are ranked by, after round t; one vector, shape ``(3·U,)``."""
        count, ema = estimate.numel(), Ema(self.ema_rate, warm=False, per_coordinate=True)
        if track is None or not track.numel():
            track = torch.cat([ema.start(estimate), torch.zeros_like(estimate)])
        before, ranked = track.to(estimate.device).split([2 * count, count])
        average = ema.step(before, estimate, observed)
        score, turned = average[:count], before[count:] == 0.0
        if (t + 1) % self.every == 0:
            most = 1.0 + self.hysteresis
            turned |= (score > ranked * most) | (ranked > score * most)
        return torch.cat([average, torch.where(turned, score, ranked)])

    def _ranked(self, state: State, client: Client) -> Tensor | None:
        """What channels are ranked by for this client, shape ``(U,)``; None before any estimate."""
        own = None if self.sharing == "shared" else state.rows.get(client.id)
        shared = None if self.sharing == "client" else state.tensors["score"]
        tracks = [track for track in (shared, own) if track is not None]
        split = [track.cpu().view(3, -1) for track in tracks if track.numel()]
        found = [torch.where(evidence > 0, ranked, UNSEEN) for _, evidence, ranked in split]
        if len(found) < 2:
            return found[0] if found else None
        blended = torch.lerp(found[0], found[1], self.blend)
        return torch.where((found[0] == UNSEEN) | (found[1] == UNSEEN), torch.maximum(*found), blended)


def _of_all_units(upload: Upload) -> tuple[Tensor, Tensor]:
    """A client's estimates among all channels, and where it has one; each of shape ``(U,)``."""
    given, submodel = upload.statistic, upload.submodel
    assert given is not None
    if submodel.units is None:
        return given.clamp_min(0.0), given >= 0
    estimate = given.new_zeros(submodel.num_units).index_copy_(0, submodel.units, given.clamp_min(0.0))
    observed = torch.zeros(submodel.num_units, dtype=torch.bool, device=given.device)
    return estimate, observed.index_copy_(0, submodel.units, given >= 0)


IDLE: tuple[Idle, ...] = ((("blend",), "sharing", ("blend",)),)
"""Settings that change nothing because of others."""

# What did best in our studies, with nested steps (docs/explanation/findings.md); it stays if a default moves.
PRESETS: dict[str, dict[str, Any]] = {"recommended": {"ema_rate": 0.95, "left_out": "zero", "start": "prefix"}}
