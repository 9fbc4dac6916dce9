"""The in-process engine: rounds loop, workers, checkpoints."""

from fedfibos.simulate.checkpoint import Checkpoint, CheckpointStore
from fedfibos.simulate.engine import Interrupted, World, build_world, num_workers, simulate
from fedfibos.simulate.population import Population, populate
from fedfibos.simulate.workers import WorkerError

__all__ = [
    "Checkpoint",
    "CheckpointStore",
    "Interrupted",
    "Population",
    "WorkerError",
    "World",
    "build_world",
    "num_workers",
    "populate",
    "simulate",
]
