"""Federated learning across clients of unequal capacity.

The names below are the public interface; each is imported on first use, so that the command line answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfibos.config.experiment import Experiment as Experiment
    from fedfibos.config.experiment import load_experiment as load_experiment
    from fedfibos.data import load as load
    from fedfibos.data.partition import Partition as Partition
    from fedfibos.data.partition import partition as partition
    from fedfibos.evaluate import accuracy as accuracy
    from fedfibos.methods import METHODS as METHODS
    from fedfibos.model import model_of as model_of
    from fedfibos.round import federated_round as federated_round
    from fedfibos.round import run_in_turn as run_in_turn
    from fedfibos.round import sample as sample
    from fedfibos.training import LocalTraining as LocalTraining
    from fedfibos.types import Client as Client

_HOMES = {
    "Client": "fedfibos.types",
    "Experiment": "fedfibos.config.experiment",
    "LocalTraining": "fedfibos.training",
    "METHODS": "fedfibos.methods",
    "Partition": "fedfibos.data.partition",
    "accuracy": "fedfibos.evaluate",
    "federated_round": "fedfibos.round",
    "load": "fedfibos.data",
    "load_experiment": "fedfibos.config.experiment",
    "model_of": "fedfibos.model",
    "partition": "fedfibos.data.partition",
    "run_in_turn": "fedfibos.round",
    "sample": "fedfibos.round",
}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Import a public name from the module it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedfibos' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *_HOMES])
