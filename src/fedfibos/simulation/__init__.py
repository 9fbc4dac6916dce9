"""The in-process engine: rounds loop, workers, checkpoints."""

from fedfibos.runs.checkpoint import Checkpoint, CheckpointStore
from fedfibos.simulation.engine import num_workers, simulate
from fedfibos.simulation.failures import WorkerError
from fedfibos.simulation.interrupts import STOP, Interrupted, Stopped
from fedfibos.simulation.population import Population
from fedfibos.simulation.world import World, build_world

__all__ = [
    "STOP",
    "Checkpoint",
    "CheckpointStore",
    "Interrupted",
    "Population",
    "Stopped",
    "WorkerError",
    "World",
    "build_world",
    "num_workers",
    "simulate",
]
