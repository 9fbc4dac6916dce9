"""The Gaussian mechanism on a round's sums: clip each client, add noise, divide by what is known without them.

Everything here that is not noise is a function of one client's upload alone, or of none. So two cohorts that differ by
one client give sums that differ by at most ``clip`` (updates) and ``statistic_clip`` (statistics).

References:
    McMahan, Ramage, Talwar, Zhang. Learning Differentially Private Recurrent Language Models. ICLR 2018.
    arXiv:1710.06963: clients clipped, and a denominator that is the expected weight of the cohort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedfibos.aggregate import Sums
from fedfibos.common.streams import stream
from fedfibos.method import Method, Observes, ScoresUnits, Signed, answer, extract_submodel
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.privacy.settings import Privacy
from fedfibos.submodel import Submodel, holding
from fedfibos.types import Client, State, Upload


@dataclass(frozen=True)
class Level:
    """The clients of one capacity, in one round.

    Attributes:
        client: Any client of that capacity in the round; it stands for all.
        expected: How many participants have it: the expected number, or, of a cohort that is no secret, the number.
    """

    client: Client
    expected: float


@dataclass(frozen=True)
class Private:
    """What makes one round private.

    Attributes:
        settings: Bounds and noise.
        seed: Root of the noise; secret.
        levels: The capacities of the round's participants, known without asking who takes part (or with, where that is
            no secret).
        model: Architecture and layout.
    """

    settings: Privacy
    seed: int
    levels: tuple[Level, ...]
    model: Model

    def clipped(self, method: Method, upload: Upload) -> Upload:
        """What of an upload enters the sums.

        Raises:
            ValueError: It has a statistic, and the method does not say when it has one.
        """
        delta = clip(upload.delta, self.settings.clip)
        statistic = upload.statistic
        if statistic is not None:
            if self.settings.statistic_clip is None or self.observed(method) != upload.observed:
                raise ValueError(
                    f"an upload has a statistic of {upload.observed!r}: under privacy a method must say so beforehand, "
                    f"its observes says {self.observed(method)!r}"
                )
            if upload.observed == "units":
                statistic = statistic.clamp_min(0.0)  # below 0 there is no estimate
            statistic = clip(statistic, self.settings.statistic_clip)
        return replace(upload, delta=delta, statistic=statistic, counted=None)

    def observed(self, method: Method) -> str | None:
        """Of what the uploads of this round have a statistic, known without them."""
        t = self.levels[0].client.round
        return method.observes(self.model, t) if isinstance(method, Observes) else None

    def released(self, method: Method, state: State, params: Params, sums: Sums) -> State:
        """Make the sums private, in place: noise is added, and who holds what becomes what was expected.

        Args:
            method: The method.
            state: At the start of the round.
            params: At the start of the round.
            sums: Of clipped uploads.

        Returns:
            The state after the method's ``update``, which sees one client of each capacity whose update is 0.
        """
        t, like = self.levels[0].client.round, sums.delta
        submodels = [extract_submodel(method, self.model, state, params, level.client) for level in self.levels]
        weights = [level.expected for level in self.levels]
        sums.holders, sums.weight = expected_holders(submodels, weights, like), sum(weights)
        noise = gaussian(self.seed, "update", t, like.numel(), self.settings.noise * self.settings.clip)
        sums.delta.add_(noise.to(like.device)).mul_(sums.holders > 0)
        if (observed := self.observed(method)) is not None:
            self._release_statistic(method, sums, observed, submodels, weights, t)
        for level, submodel in zip(self.levels, submodels, strict=True):
            client = replace(level.client, weight=level.expected)
            state = answer("update", method.update(state, client, blank(submodel, self.model)), State)
        return state

    def _release_statistic(
        self, method: Method, sums: Sums, observed: str, submodels: Sequence[Submodel], weights: list[float], t: int
    ) -> None:
        count = self.model.layout.num_maskable
        if observed == "units":
            assert isinstance(method, ScoresUnits)
            count = method.num_units(self.model)
            observers = expected_observers(submodels, weights, count, sums.delta)
        elif observed == "held":
            observers = sums.holders[:count].clone()
        else:
            observers = torch.full_like(sums.holders[:count], sum(weights))
        given = torch.zeros_like(observers) if sums.statistic is None else sums.statistic
        assert self.settings.statistic_clip is not None
        assert self.settings.statistic_noise is not None
        scale = self.settings.statistic_noise * self.settings.statistic_clip
        noisy = given.add(gaussian(self.seed, "statistic", t, count, scale).to(given.device)).mul_(observers > 0)
        signed = isinstance(method, Signed) and "statistic" in method.signed
        sums.statistic, sums.observers = noisy if signed else noisy.clamp_min_(0.0), observers


def clip(vector: Tensor, most: float) -> Tensor:
    """The vector, scaled down where its Euclidean norm is above ``most``; its norm is taken in float64."""
    norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    return vector if norm <= most else vector * (most / norm)


def gaussian(seed: int, purpose: str, t: int, count: int, deviation: float) -> Tensor:
    """The noise of round t, float32, shape ``(count,)``; on a stream of its own."""
    return torch.randn(count, generator=stream(seed, "privacy", purpose, t)).mul_(deviation)


def expected_holders(submodels: Sequence[Submodel], weights: Sequence[float], like: Tensor) -> Tensor:
    """How many participants are expected to hold each coordinate; shape ``(size,)``.

    Args:
        submodels: Of each capacity.
        weights: How many participants of each capacity are expected.
        like: Of that shape and device.
    """
    holders = torch.zeros_like(like)
    for submodel, weight in zip(submodels, weights, strict=True):
        submodel.count_in(holders, weight)
    return holders


def expected_observers(submodels: Sequence[Submodel], weights: Sequence[float], count: int, like: Tensor) -> Tensor:
    """How many participants are expected to hold each channel of all axes; shape ``(count,)``."""
    observers = torch.zeros(count, device=like.device)
    for submodel, weight in zip(submodels, weights, strict=True):
        if submodel.units is None:
            observers.add_(weight)
        else:
            observers[submodel.units] += weight
    return observers


def blank(submodel: Submodel, model: Model) -> Upload:
    """The upload of a client that did nothing: it tells of no one's data."""
    held = submodel.local_layout(model.layout).size
    return Upload(submodel, torch.zeros(held, device=model.device), 0.0, 1)


def noise_per_coordinate(
    submodels: Sequence[Submodel], weights: Sequence[float], settings: Privacy, size: int
) -> Tensor:
    """Standard deviation of the noise in the mean update of each coordinate, z·C / holders; inf where nobody holds."""
    held = sum(weight * holding(submodel, size) for submodel, weight in zip(submodels, weights, strict=True))
    return settings.noise * settings.clip / torch.as_tensor(held)
