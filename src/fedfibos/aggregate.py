"""The cohort's sums, added one upload at a time in constant memory, and the two averages made from them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedfibos.params import Layout, Params
from fedfibos.server.optimizer import Moments, stepped
from fedfibos.server.robust import center, dense
from fedfibos.server.settings import PLAIN, Server
from fedfibos.server.tally import Tally
from fedfibos.submodel import Submodel
from fedfibos.types import Upload

Average = Literal["participants", "holders"]
_SMALLEST = torch.finfo(torch.float32).tiny


class Sums:
    """Streaming sufficient statistics of a cohort: all a server step needs.

    Unheld means weight 0, never delta 0. Sums are float32 and in the order of :meth:`add`, which the
    round fixes, so equal inputs give equal bytes.

    Attributes:
        delta: Σ w·Δ, shape ``(size,)``.
        weight: Σ w.
        statistic: Σ of the statistics (each participant counts once), shape ``(d,)``, or one number of each channel of
            all axes where statistics are of channels; None without any. What a robust merge makes of them, see
            :meth:`mean_statistic`.
        moments: Of the server's optimiser after this round; empty before :meth:`mean_delta`, and without one.
    """

    def __init__(
        self,
        layout: Layout,
        device: torch.device | None = None,
        server: Server = PLAIN,
        moments: Moments | None = None,
    ) -> None:
        """Start from nothing.

        Args:
            layout: Of the full model.
            device: Where the sums lie.
            server: How updates are merged, and the optimiser that steps by them. All but ``mean`` keep every upload.
            moments: Of that optimiser, after the round before.
        """
        self.delta = torch.zeros(layout.size, device=device)
        self._holders = Tally(layout.size, device)
        self.weight = 0.0
        self.statistic: Tensor | None = None
        self._observers: Tally | None = None
        self._num_maskable = layout.num_maskable
        self._server, self._before = server, dict(moments or {})
        self.moments: Moments = {}
        self._updates: list[Tensor] | None = None if server.merge == "mean" else []
        self._statistics: list[Tensor] = []  # with a robust merge: every one, NaN where its client observed nothing

    @property
    def holders(self) -> Tensor:
        """Σ w of those that hold the coordinate, shape ``(size,)``."""
        return self._holders.total

    @holders.setter
    def holders(self, total: Tensor) -> None:
        self._holders = Tally(total.numel(), total.device, total)

    @property
    def observers(self) -> Tensor | None:
        """Number of participants whose statistic covers the coordinate (or channel), of its shape; or None."""
        return None if self._observers is None else self._observers.total

    @observers.setter
    def observers(self, total: Tensor) -> None:
        self._observers = Tally(total.numel(), total.device, total)

    def add(self, upload: Upload, weight: float = 1.0) -> None:
        """Add one participant's upload."""
        submodel = upload.submodel
        submodel.add_to(self.delta, upload.delta, weight)
        if self._updates is not None:
            self._updates.append(dense(upload.delta, submodel, upload.counted, self.delta.numel()))
        self._holders.add(upload, weight)
        self.weight += weight
        if upload.statistic is not None and upload.observed == "units":
            self._add_units(submodel, upload.statistic)
        elif upload.statistic is not None:
            if self.statistic is None or self._observers is None:
                self.statistic = torch.zeros(self._num_maskable, device=self.delta.device)
                self._observers = Tally(self._num_maskable, self.delta.device)
            submodel.add_to(self.statistic, upload.statistic, 1.0)
            if upload.observed == "held":
                self._observers.add(upload, 1.0)
            else:
                self._observers.total.add_(1.0)
            if self._updates is not None:
                self._statistics.append(_observed(upload, self._num_maskable))

    def _add_units(self, submodel: Submodel, statistic: Tensor) -> None:
        """Add a statistic of the channels that the submodel holds; below 0 there is none."""
        count = len(statistic) if submodel.units is None else submodel.num_units
        if self.statistic is None or self._observers is None:
            self.statistic = torch.zeros(count, device=self.delta.device)
            self._observers = Tally(count, self.delta.device)
        seen = self._observers.total
        units = torch.arange(count, device=self.delta.device) if submodel.units is None else submodel.units
        self.statistic.index_add_(0, units, statistic.clamp_min(0.0))
        seen.index_add_(0, units, (statistic >= 0).to(torch.float32))
        if self._updates is not None:
            spread = torch.full_like(seen, torch.nan)
            spread[units] = torch.where(statistic >= 0, statistic, torch.nan)
            self._statistics.append(spread)

    def mean_delta(self, average: Average) -> Tensor:
        """The averaged update, shape ``(size,)``; zero on coordinates that nobody held.

        ``participants`` divides by Σ w (FedFIbOS, Algorithm 1, line 20: 1/A); ``holders`` divides each
        coordinate by the weight of those that held it (HeteroFL, FedRolex, FIARSE). A robust merge stands in for the
        mean of the holders. Where the server has an optimiser, this is what it makes of the average.
        """
        mean = self._average(average)
        if self._server.optimizer == "sgd":
            return mean
        step, self.moments = stepped(self._server, self._before, mean, self.holders > 0)
        return step

    def _average(self, average: Average) -> Tensor:
        if self._updates is None and average == "participants":
            return self.delta / self.weight
        holders = self.holders.clamp_min(_SMALLEST)  # Σ w·Δ is 0 where nobody held
        mean = torch.div(self.delta, holders, out=holders)
        if self._updates is None:
            return mean
        merged = center(self._server, self._updates, mean)
        return merged if average == "holders" else merged.mul_(self.holders / self.weight)

    def server_step(self, params: Params, average: Average, server_lr: float) -> Params:
        """x ← x − η_s · mean Δ."""
        mean = self.mean_delta(average)
        return Params(params.layout, torch.sub(params.flat, mean, alpha=server_lr, out=mean))

    def mean_statistic(self) -> tuple[Tensor, Tensor] | None:
        """``(mean over the observers, observed)``, both shape ``(d,)``; None when nobody sent a statistic.

        A robust merge stands in for the mean here as in :meth:`mean_delta`: of the observers of each coordinate.
        """
        if self.statistic is None or self.observers is None:
            return None
        observers = self.observers.clamp_min(_SMALLEST)
        mean = torch.div(self.statistic, observers, out=observers)  # 0 where nobody observed
        if self._updates is not None:
            mean = center(self._server, self._statistics, mean)
        return mean, self.observers.bool()


def _observed(upload: Upload, size: int) -> Tensor:
    """A statistic of coordinates, NaN where its client observed none; shape ``(size,)``."""
    statistic = torch.zeros(size, device=upload.delta.device)
    assert upload.statistic is not None
    upload.submodel.add_to(statistic, upload.statistic, 1.0)
    if upload.observed == "all":
        return statistic
    seen = Tally(size, statistic.device)
    seen.add(upload, 1.0)
    return torch.where(seen.total > 0, statistic, torch.nan)
