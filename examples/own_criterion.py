"""A criterion of your own, SNIP's: which parameters a client holds (``fedfibos run examples/own_criterion.toml``)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedfibos import FedFIbOS


def snip(score: Tensor, magnitude: Tensor, evidence: Tensor | None) -> Tensor:
    """|x ∂L/∂x| with √f̄ for the derivative (SNIP: Lee, Ajanthan, Torr, ICLR 2019)."""
    return score.sqrt() * magnitude


@dataclass(frozen=True)
class Snip(FedFIbOS):
    """FedFIbOS by that criterion, so that an experiment can name it."""

    criterion: ClassVar = staticmethod(snip)  # type: ignore[misc, assignment]
