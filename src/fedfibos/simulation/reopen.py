"""A run directory opened again at its last checkpoint, to look at the model that it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.runs.checkpoint import At
from fedfibos.runs.files import CONFIG
from fedfibos.runs.made import DEALT, latest_environment
from fedfibos.runs.own_code import own_code, warn_of_changes
from fedfibos.runs.stored import experiment_of, is_stored, no_run
from fedfibos.simulation import Checkpoint, CheckpointStore, World, build_world


@dataclass(frozen=True)
class Reopened:
    """A run at its last checkpoint.

    Attributes:
        experiment: What was run.
        world: Method, model, population and data, as the run had them.
        checkpoint: Round, parameters and the method's state.
    """

    experiment: Experiment
    world: World
    checkpoint: Checkpoint


def reopen(
    run: Path,
    *,
    device: str = "cpu",
    data_dir: Path | None = None,
    warn: Callable[[str], None] = lambda text: None,
    at: At = "last",
) -> Reopened:
    """Rebuild a run's world and read one of its checkpoints.

    Args:
        run: The run directory.
        device: Where to compute.
        data_dir: The data folder.
        warn: Called with what is to be known, in one line.
        at: The newest sound checkpoint, that of a round, or the ``best`` by the run's ``checkpoint.best``.

    Raises:
        RecordError: No run directory, or one without such a checkpoint (records are often kept without).
        ValueError, FileNotFoundError: As of :func:`fedfibos.simulation.build_world`.
    """
    if not is_stored(run / CONFIG):
        raise no_run(run)
    experiment = experiment_of(run)
    latest = latest_environment(run)
    if latest:
        warn_of_changes(run, latest, own_code(to_toml(experiment)), warn)
    world = build_world(experiment, device=device, data_dir=data_dir, warn=warn)
    if latest.get(DEALT, world.population.dealt_sha256) != world.population.dealt_sha256:
        warn(
            f"clients have other examples than when {run} was last run, so its numbers do not compare: other data "
            "files, a data function that draws without a seed, or another version of numpy or torch"
        )
    store = CheckpointStore(run, experiment.run.score_home, best=experiment.checkpoint.best)
    checkpoint = store.load(at, world.model.layout, warn)
    return Reopened(experiment, world, checkpoint.to(world.model.device))
