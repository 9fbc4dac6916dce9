"""The settings of the server's step: how uploads are merged, and what is made of the merged update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedfibos.common.field_checks import check_fields, check_positive

ADAPTIVE = ("adam", "yogi", "adagrad")
"""Optimisers that divide by a running size: their steps do not grow with the update."""


@dataclass(frozen=True)
class Server:
    """What the server makes of a round's uploads. The method's ``server_lr`` is the server's learning rate.

    Attributes:
        optimizer: The optimiser that takes the merged update as its gradient: ``sgd`` (applies the update itself),
            ``momentum`` (Hsu et al. 2019), or ``adam``, ``yogi``, ``adagrad`` (Reddi et al. 2021). If nobody held a
            coordinate in a round, its moments and its parameter stay as they are.
        momentum: Momentum factor of ``momentum``.
        betas: Rates of the mean and of the mean square, for ``adam`` and ``yogi``. ``adagrad`` uses the first alone.
        tau: τ of ``adam``, ``yogi`` and ``adagrad``: it is added to the root of the mean square. The mean square begins
            at τ².
        merge: How the updates of a coordinate's holders become one: their weighted ``mean``, their ``median``, or their
            ``trimmed-mean`` (Yin et al. 2018). A few wrong clients move the last two little; there each holder counts
            once. With fewer than 3 holders it is the mean. Shared Fisher estimates are merged in the same way.
        trim: For ``trimmed-mean``: the share of the holders that is left out at each end, rounded up.
        average: Rate of a moving average of the global parameters over the rounds, such as 0.95. The server then
            evaluates, exports and audits the average, while training goes on from the parameters themselves. It keeps
            one more vector as large as the model. 0: none.
    """

    optimizer: Literal["sgd", "momentum", "adam", "yogi", "adagrad"] = "sgd"
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.99)
    tau: float = 1e-3
    merge: Literal["mean", "trimmed-mean", "median"] = "mean"
    trim: float = 0.1
    average: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)
        check_positive(self, "tau")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be a number in [0, 1), got {self.momentum}")
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise ValueError(f"betas must be two numbers in [0, 1), got {list(self.betas)}")
        if not 0 < self.trim < 0.5:
            raise ValueError(f"trim must be a share of the holders above 0 and below 1/2, got {self.trim}")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be a number in [0, 1), got {self.average}")

    def cautions(self, server_lr: float | None) -> list[str]:
        """What to say of a learning rate that suits another optimiser."""
        if self.optimizer not in ADAPTIVE or server_lr is None or server_lr < 1.0:
            return []
        return [
            f"server.optimizer = {self.optimizer!r} moves each coordinate by about method.server_lr a round: "
            f"{server_lr:g} is very large, 0.01 is usual"
        ]


PLAIN = Server()
"""The mean, and the update itself."""
