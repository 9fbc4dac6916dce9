"""How a run's examples are dealt, on record for a picture: classes by client."""

from __future__ import annotations

import json
from pathlib import Path

from fedfibos.common.atomic_files import write_whole
from fedfibos.runs.files import PARTITION
from fedfibos.simulation.population import class_counts
from fedfibos.simulation.world import World

LARGEST = 200_000
"""Counts beyond which nobody sees anything in a picture, and the file would be the largest of the record."""


def note_partition(run: Path, world: World) -> None:
    """Write a run's ``partition.json``, unless it is there, the targets are no classes, or it would be too large."""
    population, split = world.population, world.split
    path = run / PARTITION
    if path.exists() or not split.has_classes or len(population) * len(split.classes) > LARGEST:
        return
    counts = class_counts(population.parts, split.train.labels, len(split.classes))
    write_whole(path, json.dumps({"classes": list(split.classes), "counts": counts.tolist()}) + "\n")
