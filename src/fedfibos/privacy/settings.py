"""The settings of differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedfibos.common.field_checks import check_fields, check_positive

Sampling = Literal["fixed", "poisson", "known"]


@dataclass(frozen=True)
class Privacy:
    """Differential privacy of clients, at the server. Without this section there is none.

    What is private is all that a client's data do to the parameters and the shared score, over the whole run. What
    epsilon covers, and what not: docs/explanation/privacy.md.

    Attributes:
        clip: C: an update of larger Euclidean norm, over all that its client holds, is scaled down to it.
        noise: z: the noise in every coordinate of the sum of updates has the standard deviation z·C.
        statistic_clip: The same bound for a client's statistic (a Fisher estimate); needed where the method has one.
        statistic_noise: The same multiplier for the sum of statistics.
        delta: δ, the probability with which epsilon may fail; below 1 / clients.
        sampling: ``fixed``: a secret cohort of fixed size; neighbours differ in one client's data. ``poisson``: each
            client joins a round with probability cohort / clients, in secret; neighbours differ by one client.
            ``known``: a cohort of fixed size that nobody need keep secret; epsilon is that of the client that was in
            most cohorts.
        seed: Seed of the noise. It must be secret. Not set: a simulation takes it from its own seed, a fleet from the
            operating system.
    """

    clip: float
    noise: float
    statistic_clip: float | None = None
    statistic_noise: float | None = None
    delta: float = 1e-5
    sampling: Sampling = "fixed"
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)
        check_positive(self, "clip", "noise")
        if (self.statistic_clip is None) != (self.statistic_noise is None):
            raise ValueError(
                f"statistic_clip and statistic_noise go together, got {self.statistic_clip} and {self.statistic_noise}"
            )
        if self.statistic_clip is not None:
            check_positive(self, "statistic_clip", "statistic_noise")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must be a probability above 0 and below 1, got {self.delta:g}")
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
