"""Federated learning across clients of unequal capacity.

The names below are the public interface; each is imported on first use, so that the command line answers at once.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfibos.aggregate import Sums as Sums
    from fedfibos.analysis.accuracy import accuracy as accuracy
    from fedfibos.config.experiment import Experiment as Experiment
    from fedfibos.config.experiment import load_experiment as load_experiment
    from fedfibos.data import Split as Split
    from fedfibos.data import TensorData as TensorData
    from fedfibos.data import load as load
    from fedfibos.data.partition import Partition as Partition
    from fedfibos.data.partition import partition as partition
    from fedfibos.export.formats import export_submodel as export_submodel
    from fedfibos.export.formats import submodel_module as submodel_module
    from fedfibos.local import local_training as local_training
    from fedfibos.method import Method as Method
    from fedfibos.methods import METHODS as METHODS
    from fedfibos.methods import PRESETS as PRESETS
    from fedfibos.model import Model as Model
    from fedfibos.model import model_of as model_of
    from fedfibos.params import Params as Params
    from fedfibos.round import NoUploadError as NoUploadError
    from fedfibos.round import federated_round as federated_round
    from fedfibos.round import sample as sample
    from fedfibos.simulation import simulate as simulate
    from fedfibos.simulation.reopen import reopen as reopen
    from fedfibos.streams import stream as stream
    from fedfibos.submodel import Mask as Mask
    from fedfibos.submodel import Slice as Slice
    from fedfibos.submodel import Submodel as Submodel
    from fedfibos.submodel import mask_from_scores as mask_from_scores
    from fedfibos.training import LocalTraining as LocalTraining
    from fedfibos.types import Client as Client
    from fedfibos.types import Dataset as Dataset
    from fedfibos.types import State as State
    from fedfibos.types import Upload as Upload

_HOMES = {
    "Client": "fedfibos.types",
    "Dataset": "fedfibos.types",
    "Experiment": "fedfibos.config.experiment",
    "LocalTraining": "fedfibos.training",
    "METHODS": "fedfibos.methods",
    "Mask": "fedfibos.submodel",
    "Method": "fedfibos.method",
    "Model": "fedfibos.model",
    "NoUploadError": "fedfibos.round",
    "PRESETS": "fedfibos.methods",
    "Params": "fedfibos.params",
    "Partition": "fedfibos.data.partition",
    "Slice": "fedfibos.submodel",
    "Split": "fedfibos.data",
    "State": "fedfibos.types",
    "Submodel": "fedfibos.submodel",
    "Sums": "fedfibos.aggregate",
    "TensorData": "fedfibos.data",
    "Upload": "fedfibos.types",
    "accuracy": "fedfibos.analysis.accuracy",
    "export_submodel": "fedfibos.export.formats",
    "federated_round": "fedfibos.round",
    "load": "fedfibos.data",
    "load_experiment": "fedfibos.config.experiment",
    "local_training": "fedfibos.local",
    "mask_from_scores": "fedfibos.submodel",
    "model_of": "fedfibos.model",
    "partition": "fedfibos.data.partition",
    "reopen": "fedfibos.simulation.reopen",
    "sample": "fedfibos.round",
    "simulate": "fedfibos.simulation",
    "stream": "fedfibos.streams",
    "submodel_module": "fedfibos.export.formats",
}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Import a public name from the module it lives in."""
    if name == "__version__":
        return version("fedfibos")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedfibos' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *_HOMES])
