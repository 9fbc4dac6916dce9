"""The simulation: federated rounds one after another, evaluated at a set cadence, checkpointed, resumable."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedfibos.analysis.accuracy import evaluate
from fedfibos.backend.determinism import reproducible
from fedfibos.backend.recorded import EXPERIMENTAL
from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.round import RoundReport, federated_round
from fedfibos.runs.checkpoint import Checkpoint, CheckpointStore
from fedfibos.runs.classes import rejected_classes
from fedfibos.runs.environment import usable_cores
from fedfibos.runs.made import DEALT, FITTED, INITIAL
from fedfibos.runs.record import RunDirectory, check_usable
from fedfibos.runs.summary import summarise
from fedfibos.simulation.dropout import draw_silent, leaving_out
from fedfibos.simulation.workers import Executor, executor
from fedfibos.simulation.world import Warn, World, build_world, setting_of
from fedfibos.soundness import first_state


class Interrupted(Exception):
    """Ctrl-C or SIGTERM: the round was finished and a checkpoint written."""

    def __init__(self, finished_rounds: int) -> None:
        super().__init__(f"interrupted after round {finished_rounds}")
        self.finished_rounds = finished_rounds


def simulate(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    data_dir: Path | None = None,
    on_resume: Callable[[list[dict[str, Any]]], None] = lambda records: None,
    on_round: Callable[[dict[str, Any]], None] = lambda record: None,
    on_warning: Warn = lambda text: None,
) -> dict[str, Any]:
    """Run an experiment into a run directory.

    Args:
        experiment: What to run.
        out: The run directory; made if it is not there.
        resume: Go on from the newest sound checkpoint, to the same bytes as an uninterrupted run.
        overwrite: Remove the run that is there first; files that are not a run's stay.
        workers: Processes that train clients, one torch thread each; None: one for each processor this process may
            use, but no more than clients in a round. The result does not depend on it.
        device: ``cpu`` or ``cuda``.
        data_dir: The data folder.
        on_resume: Called once with the lines of ``rounds.jsonl`` that the run goes on after, where there are any.
        on_round: Called with every line of ``rounds.jsonl``.
        on_warning: Called with every warning, in one line.

    Returns:
        The content of ``final.json``.

    Raises:
        Interrupted: After Ctrl-C, once the round is finished and a checkpoint is written.
        NoUploadError: Every client of a round was rejected; the checkpoint before that round is kept.
    """
    config = to_toml(experiment)
    check_usable(out, config, resume=resume, overwrite=overwrite)  # before the data are loaded
    with reproducible():
        world = build_world(experiment, device=device, data_dir=data_dir, warn=on_warning)
        began = {DEALT: world.population.dealt_sha256, INITIAL: world.model.initial_params().sha256()}
        if (fleet := world.population.fleet) is not None:
            began[FITTED] = fleet.sha256
        directory = RunDirectory.open(
            out, config, resume=resume, overwrite=overwrite, device=device, warn=on_warning, began=began
        )
        try:
            store = CheckpointStore(directory.path, experiment.run.score_home, experiment.run.score_bytes)
            checkpoint = store.load_latest(world.model.layout, on_warning, to_go_on=True) if resume else None
            if checkpoint is None:
                params = world.model.initial_params().to(world.model.device)
                state = replace(
                    first_state(world.method, params), rows=store.scores.empty(), variates=store.variates.empty()
                )
                checkpoint = Checkpoint(0, params, state)
            checkpoint = checkpoint.to(world.model.device)
            directory.go_on(checkpoint.round, config, on_warning)
            if checkpoint.round:
                on_resume(directory.rounds())
            run = _Run(experiment, world, directory, store, on_round, on_warning)
            for line in world.cautions(checkpoint.round, checkpoint.state, checkpoint.params):
                on_warning(line)
            if experiment.run.cuda_graphs:
                on_warning(EXPERIMENTAL if device != "cpu" else "run.cuda_graphs changes nothing on a CPU")
            processes = num_workers(workers, device, experiment.federation.cohort)
            engine = executor(setting_of(experiment, world), processes, experiment.run.cuda_graphs)
            try:
                checkpoint = run.rounds(checkpoint, engine)
            finally:
                engine.close()
        except BaseException:
            directory.abandon()
            raise
        rounds = directory.rounds()
        final = {
            "method": experiment.method.name,
            "seed": experiment.seed,
            "rounds": checkpoint.round,
            "params_sha256": checkpoint.params.sha256(),
            **summarise(rounds),
            **({} if fleet is None else {"devices": fleet.record()}),
        }
        if lost := rejected_classes(rounds, partial(_took_part, experiment.federation.cohort, world)):
            final["rejected_classes"] = lost
        directory.finish(final)
        return final


def _took_part(cohort: int, world: World, record: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """The participants of a line of ``rounds.jsonl``, each with its capacity in that round."""
    t, ids = record["round"] - 1, record.get("participants")
    if ids is None:  # nobody was rejected
        ids = world.population.cohort(cohort, t)
    return zip(ids, world.population.capacities.of(ids, t), strict=True)


def num_workers(asked: int | None, device: str, cohort: int) -> int:
    """Worker processes to use: what was asked, else one for each usable processor; one where a GPU does the work."""
    if asked is not None and asked < 1:
        raise ValueError(f"workers must be at least 1, got {asked}")
    if device != "cpu":
        return 1
    return min(asked or usable_cores(), cohort)


@dataclass
class _Run:
    """The rounds loop and what it reports to."""

    experiment: Experiment
    world: World
    directory: RunDirectory
    store: CheckpointStore
    on_round: Callable[[dict[str, Any]], None]
    on_warning: Warn

    def rounds(self, now: Checkpoint, engine: Executor) -> Checkpoint:
        """Run the rounds that are left."""
        world, federation = self.world, self.experiment.federation
        written = now.round
        with _deferred_interrupt() as interrupted:
            while now.round < federation.rounds:
                started = time.perf_counter()
                ids = world.population.cohort(federation.cohort, now.round)
                absent = draw_silent(ids, federation.dropout, self.experiment.seed, now.round)
                cohort = world.population.clients(ids, now.round)
                run = leaving_out(engine.train, absent) if absent else engine.train
                try:
                    state, params, report = federated_round(
                        world.method,
                        world.model,
                        now.state,
                        now.params,
                        cohort,
                        run,
                        server=self.experiment.server,
                        num_clients=len(world.population.ids),
                    )
                    then = Checkpoint(now.round + 1, params, state)
                    record = self._record(then, report, absent, engine, started)
                    self.directory.append_round(record)
                except BaseException:
                    if written < now.round:
                        with suppress(OSError):  # a full disk: what went wrong first is what is told
                            self.store.save(now)
                    raise
                now = then
                self.store.drop_superseded(now.state)
                try:
                    self.on_round(record)
                except (OSError, SystemExit):  # who looks on is gone: a closed pipe, a full disk
                    self.store.save(now)
                    raise
                last = now.round == federation.rounds
                if last or interrupted.is_set() or now.round % self.experiment.run.checkpoint_every == 0:
                    self.store.save(now)
                    written = now.round
                if interrupted.is_set() and not last:
                    raise Interrupted(now.round)
        return now

    def _record(
        self, now: Checkpoint, report: RoundReport, absent: frozenset[int], engine: Executor, started: float
    ) -> dict[str, Any]:
        """The round's line of ``rounds.jsonl``, with an evaluation where one is due."""
        rejected = {client: reason for client, reason in report.rejected.items() if client not in absent}
        for client, reason in rejected.items():
            self.on_warning(f"round {now.round}: client {client} was rejected: {reason}")
        record: dict[str, Any] = {
            "round": now.round,
            "loss": report.loss,
            "rejected": {str(client): reason for client, reason in rejected.items()},
            "bytes": {"down": report.bytes_down, "up": report.bytes_up},
        }
        if rejected:  # else the seed gives them back
            record["participants"] = list(report.participants)
        if self.experiment.federation.dropout:
            record["silent"] = sorted(absent)
        if now.round % self.experiment.evaluation.every == 0 or now.round == self.experiment.federation.rounds:
            population = self.world.population
            record["evaluation"] = evaluate(
                self.world.method,
                self.world.model,
                now.state,
                now.params,
                population.everyone(now.round),
                population.test_parts,
                engine.hits,
                self.experiment.evaluation.submodel_clients,
                self.world.split.test.labels,
            )
        record["seconds"] = round(time.perf_counter() - started, 4)
        return record


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Turn Ctrl-C or SIGTERM into an event that the loop looks at between rounds; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def note(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
