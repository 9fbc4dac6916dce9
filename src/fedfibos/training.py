"""How a client trains: the settings of local training."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch

from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.common.validation import FieldError

MOST_LEVELS = 16
"""Capacities of a nested family at most."""

LARGEST = 10**9
"""Of counts: beyond it nothing can be meant."""


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in one round.

    Attributes:
        steps: Number of optimiser steps K, each on a full batch; steps or epochs is set, not both.
        epochs: Passes over the client's data; the last batch may be smaller. 1 where neither is set.
        batch_size: Examples a step; a client with fewer uses all it has.
        optimizer: ``sgd`` or ``adamw``; its state starts afresh every round.
        lr: Learning rate (at round 0, before the schedule).
        momentum: SGD's momentum.
        weight_decay: SGD's L2 penalty, AdamW's decoupled decay.
        betas: AdamW's moment rates.
        clip_norm: Largest L2 norm of a step's gradient; 0 for no clipping.
        schedule: How the learning rate changes over the rounds: ``constant``, ``cosine`` (towards 0 after the last
            round) or ``milestones`` (times ``decay`` at each).
        milestones: Rounds at which ``milestones`` decays.
        decay: Factor of ``milestones``.
        absent_labels: ``keep``, or ``mask``: the scores of classes that the client has no example of are
            set to 0 before the loss, and the client counts as no holder of the classifier's entries of these
            classes (HeteroFL's masked cross-entropy); or ``adjust``: the logarithm of the client's class frequencies,
            smoothed and times ``adjust_tau``, is added to the scores before the loss (logit adjustment).
        adjust_tau: τ of ``adjust``.
        nested: Share of the steps, in [0, 1], that train a smaller member of the nested family that the client holds.
            The number of steps stays the same. 0: none. For methods whose submodels nest. Optimiser state goes on over
            all that the client holds.
        nested_rule: What such a step trains: a smaller member, drawn evenly (``draw``); or the whole submodel and the
            smallest member, the mean of their gradients (``sandwich``, two passes).
        distill: With ``sandwich``: weight λ of a loss that makes the smaller member's outputs like those of the larger
            one in the same step. 0: none.
        temperature: Temperature of ``distill``.
        levels: Capacities of the family. Empty: those of the fleet, where there is one.
        proximal: μ of FedProx (Li et al. 2020): μ/2 times the squared distance from where the client started is added
            to its loss, over what it holds; 0: none.
        scaffold: Whether control variates correct the client's drift (SCAFFOLD, option II: Karimireddy et al. 2020),
            on what it holds. The server keeps one of every client, as large as the model. For plain SGD.
        precision: ``float32``, or ``bfloat16`` autocast with float32 weights, sums and optimiser.
    """

    steps: int | None = None
    epochs: int | None = None
    batch_size: int = 20
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    clip_norm: float = 0.0
    schedule: Literal["constant", "cosine", "milestones"] = "constant"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    absent_labels: Literal["keep", "mask", "adjust"] = "keep"
    adjust_tau: float = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"
    nested: float = 0.0
    nested_rule: Literal["draw", "sandwich"] = "draw"
    distill: float = 0.0
    temperature: float = 1.0
    levels: tuple[float, ...] = ()
    proximal: float = 0.0
    scaffold: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)
        if self.steps is None and self.epochs is None:
            object.__setattr__(self, "epochs", 1)
        elif self.steps is not None and self.epochs is not None:
            raise FieldError(
                "epochs", f"set steps or epochs, not both, got steps={self.steps} and epochs={self.epochs}"
            )
        for name in ("steps", "epochs", "batch_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
            if value is not None and value > LARGEST:
                raise ValueError(f"{name} must be at most {LARGEST:,}, got {value}")
        self._check_numbers()
        if self.momentum >= 1.0:
            raise ValueError(f"momentum must be a number in [0, 1), got {self.momentum}")

    def _check_numbers(self) -> None:
        check_positive(self, "lr", "decay", "temperature")
        for name in ("momentum", "weight_decay", "clip_norm", "adjust_tau", "distill", "proximal"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or a positive number, got {getattr(self, name)}")
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise ValueError(f"betas must be two numbers in [0, 1), got {list(self.betas)}")
        if self.schedule == "milestones" and not self.milestones:
            raise ValueError("schedule 'milestones' needs milestones, the rounds at which the learning rate decays")
        if not 0.0 <= self.nested <= 1.0:
            raise ValueError(f"nested must be a share of the steps in [0, 1], got {self.nested}")
        if not all(0.0 < level <= 1.0 for level in self.levels):
            raise ValueError(f"levels must be capacities in (0, 1], got {list(self.levels)}")
        if len(self.levels) > MOST_LEVELS:
            raise ValueError(f"levels must be at most {MOST_LEVELS} capacities, got {len(self.levels)}")
        if self.scaffold:
            self._check_scaffold()
        if any(milestone < 0 for milestone in self.milestones):
            raise ValueError(f"milestones must be rounds, 0 or later, got {list(self.milestones)}")

    def _check_scaffold(self) -> None:
        """A variate is the mean of the steps' gradients, which only plain SGD's update tells."""
        if self.optimizer != "sgd":
            raise ValueError(f"scaffold needs optimizer = 'sgd', got {self.optimizer!r}")
        for name in ("momentum", "clip_norm", "proximal"):
            if getattr(self, name):
                raise ValueError(f"scaffold is for plain SGD, {name} must be 0 with it, got {getattr(self, name)}")

    def at_round(self, t: int, rounds: int) -> LocalTraining:
        """The settings of round t of ``rounds``: the learning rate after the schedule."""
        if self.schedule == "cosine":
            return replace(self, lr=max(self.lr * 0.5 * (1 + math.cos(math.pi * t / rounds)), 1e-12))
        if self.schedule == "milestones":
            return replace(self, lr=self.lr * self.decay ** sum(t >= m for m in self.milestones))
        return self

    def with_levels(self, capacities: Iterable[float]) -> LocalTraining:
        """The settings with a nested family of those capacities, where one is wanted and none is named."""
        if not self.nested or self.levels:
            return self
        return replace(self, levels=tuple(sorted(set(capacities), reverse=True)))

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The precision of a forward pass."""
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()
