"""The in-process engine: rounds loop, workers, checkpoints."""

from fedfibos.runs.checkpoint import Checkpoint, CheckpointStore
from fedfibos.simulation.engine import Interrupted, World, build_world, num_workers, simulate
from fedfibos.simulation.population import Population, populate
from fedfibos.simulation.workers import WorkerError

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
