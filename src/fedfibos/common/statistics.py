"""Mean ± standard deviation of a number over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A number measured in several runs.

    Attributes:
        mean: Over the runs.
        sd: Sample standard deviation (n − 1); None for a single run.
        n: Number of runs.
    """

    mean: float
    sd: float | None
    n: int

    def text(self, scale: float = 1.0, digits: int = 1) -> str:
        """``81.2 ± 0.4``; a single run has no spread, and says so: ``81.2 (n = 1)``."""
        mean = f"{scale * self.mean:.{digits}f}"
        return f"{mean} (n = 1)" if self.sd is None else f"{mean} ± {scale * self.sd:.{digits}f}"

    def signed(self, scale: float = 1.0, digits: int = 1) -> str:
        """The same of a difference, with its sign: ``+1.4 ± 0.5``, ``−0.8 ± 0.4``."""
        text = self.text(scale, digits)
        return f"+{text}" if self.mean > 0 else text.replace("-", "−")

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Where the mean lies at that level, by Student's t; None for one run, which tells nothing.

        Example:
            >>> low, high = Spread(0.02, 0.01, 3).interval()
            >>> round(low, 4), round(high, 4)
            (-0.0048, 0.0448)
        """
        if self.sd is None:
            return None
        from scipy.special import stdtrit  # here: see p_value

        half = float(stdtrit(self.n - 1, (1 + level) / 2)) * self.sd / math.sqrt(self.n)
        return self.mean - half, self.mean + half

    def clear(self, sign: int) -> bool:
        """Whether a difference of paired runs has that sign (1 or −1) by a paired t-test at the 95 % level.

        Two-sided; one run tells nothing. Runs that all differ by the same amount do.
        """
        return sign * self.mean > 0 and self.p_value() < 0.05

    def p_value(self) -> float:
        """Of a paired t-test, two-sided; 1 for one run, which tells nothing, 0 for runs that all differ by the same."""
        if self.sd is None or self.mean == 0.0:
            return 1.0
        if self.sd == 0.0:
            return 0.0
        from scipy.special import stdtr  # here: half a second and 40 MiB that training has no use for

        return 2 * float(stdtr(self.n - 1, -abs(self.mean) * math.sqrt(self.n) / self.sd))


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and spread of the values that are there; None where there is none.

    Example:
        >>> spread([0.8, 0.9, None])
        Spread(mean=0.85, sd=0.07071067811865474, n=2)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    sd = statistics.stdev(known) if len(known) > 1 else None
    return Spread(math.fsum(known) / len(known), sd, len(known))


def mean(values: Sequence[float]) -> float | None:
    """Of the values; None where there is none."""
    return sum(values) / len(values) if values else None
