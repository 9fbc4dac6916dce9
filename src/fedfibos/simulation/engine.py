"""The simulation: federated rounds one after another, evaluated at a set cadence, checkpointed, resumable."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedfibos.analysis.accuracy import evaluate
from fedfibos.backend.determinism import reproducible
from fedfibos.backend.recorded import EXPERIMENTAL
from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.config.federation import Federation
from fedfibos.privacy import accountant
from fedfibos.round import RoundReport, RunClients, federated_round
from fedfibos.runs.checkpoint import Checkpoint, CheckpointStore
from fedfibos.runs.classes import rejected_classes
from fedfibos.runs.client_table import client_records, write_clients
from fedfibos.runs.environment import usable_cores
from fedfibos.runs.made import DEALT, FITTED, INITIAL
from fedfibos.runs.record import RunDirectory, check_usable
from fedfibos.runs.summary import summarise
from fedfibos.simulation.cluster import clients_on
from fedfibos.simulation.dealt import note_partition
from fedfibos.simulation.dropout import draw_silent, leaving_out
from fedfibos.simulation.interrupts import STOP, Interrupted, OnRound, Stopped, deferred_interrupt
from fedfibos.simulation.private import Account
from fedfibos.simulation.skipped import Skipped
from fedfibos.simulation.workers import Engine, Executor
from fedfibos.simulation.world import Warn, World, build_world, setting_of
from fedfibos.soundness import NoUploadError, first_state
from fedfibos.trackers.tracker import Log, check_installed, tracked
from fedfibos.types import Client


def simulate(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    data_dir: Path | None = None,
    engine: Engine = "embedded",
    address: str | None = None,
    on_resume: Callable[[list[dict[str, Any]]], None] = lambda records: None,
    on_round: OnRound = lambda record: None,
    on_warning: Warn = lambda text: None,
) -> dict[str, Any]:
    """Run an experiment into a run directory.

    Args:
        experiment: What to run.
        out: The run directory; made if it is not there.
        resume: Go on from the newest sound checkpoint, to the same bytes as an uninterrupted run.
        overwrite: Remove the run that is there first; files that are not a run's stay.
        workers: Processes that train clients, one torch thread each; None: one for each processor this process may
            use, but no more than clients in a round. The result does not depend on it. See
            :func:`fedfibos.simulation.cluster.clients_on` for a Ray cluster.
        device: ``cpu`` or ``cuda``.
        data_dir: The data folder.
        engine: ``embedded``: clients train on this machine; ``ray``: on a Ray cluster.
        address: ``HOST:PORT`` of the Ray cluster's head, or ``auto``. None: the environment variable RAY_ADDRESS, and
            without it a cluster of this machine alone, which is stopped at the end.
        on_resume: Called once with the lines of ``rounds.jsonl`` that the run goes on after, where there are any.
        on_round: Called with every line of ``rounds.jsonl``, once it is on the disk. ``"stop"`` from it, or
            StopIteration raised in it, ends the run there. What else it raises comes out of here, after a checkpoint of
            that round.
        on_warning: Called with every warning, in one line.

    Returns:
        The content of ``final.json``.

    Raises:
        Interrupted: After Ctrl-C, once the round is finished and a checkpoint is written; Stopped, which is one, where
            ``on_round`` wanted it.
        MissingExtraError: A tracker of ``run.log``, the accountant of ``privacy``, or Ray where it is asked for, is not
            installed.
        NoUploadError: ``federation.patience`` rounds in turn brought no usable upload, or the run none at all; the
            checkpoint before is kept, where a round counted.
    """
    config = to_toml(experiment)
    check_usable(out, config, resume=resume, overwrite=overwrite)  # before the data are loaded
    _check_extras(experiment)
    with reproducible(), clients_on(engine, address, workers, device) as make_executor:
        world = build_world(experiment, device=device, data_dir=data_dir, warn=on_warning)
        began = {DEALT: world.population.dealt_sha256, INITIAL: world.model.initial_params().sha256()}
        if (fleet := world.population.fleet) is not None:
            began[FITTED] = fleet.sha256
        directory = RunDirectory.open(
            out, config, resume=resume, overwrite=overwrite, device=device, warn=on_warning, began=began
        )
        try:
            note_partition(directory.path, world)
            store = _store(experiment, directory.path)
            checkpoint = store.load_latest(world.model.layout, on_warning, to_go_on=True) if resume else None
            checkpoint = (checkpoint or _first(world, store)).to(world.model.device)
            directory.go_on(checkpoint.round, config, on_warning)
            if checkpoint.round:
                on_resume(directory.rounds())
            skipped = Skipped(experiment.federation, directory.rounds())
            run = _Run(
                experiment,
                world,
                directory,
                store,
                on_round,
                on_warning,
                skipped,
                _account(experiment, world, checkpoint.round),
            )
            for line in world.cautions(checkpoint.round, checkpoint.state, checkpoint.params):
                on_warning(line)
            if experiment.run.cuda_graphs:
                on_warning(EXPERIMENTAL if device != "cpu" else "run.cuda_graphs changes nothing on a CPU")
            processes = num_workers(workers, device, experiment.federation.cohort)
            clients = make_executor(setting_of(experiment, world), processes, experiment.run.cuda_graphs)
            try:
                with tracked(experiment.run.log, out, config, checkpoint.round, on_warning) as run.log:
                    checkpoint = run.rounds(checkpoint, clients)
            finally:
                clients.close()
                if experiment.run.client_records:
                    write_clients(directory.path, on_warning)
        except BaseException as error:
            directory.abandon(isinstance(error, NoUploadError) and skipped.none_counted)
            raise
        final = _final(experiment, world, directory.rounds(), checkpoint)
        if fleet is not None:
            final["devices"] = fleet.record()
        directory.finish(final)
        return final


def _check_extras(experiment: Experiment) -> None:
    """Raise MissingExtraError where something that the run needs is not installed."""
    check_installed(experiment.run.log)
    if experiment.privacy is not None:
        accountant.check_installed()


def _store(experiment: Experiment, run: Path) -> CheckpointStore:
    return CheckpointStore(run, experiment.run.score_home, experiment.run.score_bytes, experiment.checkpoint.best)


def _first(world: World, store: CheckpointStore) -> Checkpoint:
    """The server before the first round."""
    params = world.model.initial_params().to(world.model.device)
    rows, variates = store.scores.empty(), store.variates.empty()
    return Checkpoint(0, params, replace(first_state(world.method, params), rows=rows, variates=variates))


def _account(experiment: Experiment, world: World, rounds: int) -> Account | None:
    """What makes the rounds private, with those before noted; None where they are not to be."""
    if experiment.privacy is None:
        return None
    account = Account(experiment.privacy, experiment, world.method, world.model, world.population)
    account.go_on(rounds)
    return account


def _final(
    experiment: Experiment, world: World, rounds: Sequence[Mapping[str, Any]], last: Checkpoint
) -> dict[str, Any]:
    """The content of ``final.json``."""
    final: dict[str, Any] = {
        "method": experiment.method.name,
        "seed": experiment.seed,
        "rounds": last.round,
        "params_sha256": last.params.sha256(),
        **summarise(rounds),
    }
    if experiment.privacy is not None:
        final["delta"] = experiment.privacy.delta
    if skipped := [record["round"] for record in rounds if "skipped_round" in record]:
        final["skipped_rounds"] = skipped
    if lost := rejected_classes(rounds, partial(_took_part, experiment.federation, world)):
        final["rejected_classes"] = lost
    return final


def _took_part(federation: Federation, world: World, record: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """The participants of a line of ``rounds.jsonl``, each with its capacity in that round."""
    t, ids = record["round"] - 1, record.get("participants")
    if ids is None:  # nobody was rejected
        ids = world.population.cohort(federation.cohort_in(t), t)
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
    on_round: OnRound
    on_warning: Warn
    skipped: Skipped
    account: Account | None = None
    log: Log = lambda record: None

    def rounds(self, now: Checkpoint, engine: Executor) -> Checkpoint:
        """Run the rounds that are left."""
        world, federation = self.world, self.experiment.federation
        written = now.round
        with deferred_interrupt() as interrupted:
            while now.round < federation.rounds:
                started = time.perf_counter()
                ids = world.population.cohort(federation.cohort_in(now.round), now.round)
                absent = draw_silent(
                    ids, federation.dropout, self.experiment.seed, now.round, one_answers=self.account is None
                )
                cohort = world.population.clients(ids, now.round)
                run = leaving_out(engine.train, absent) if absent else engine.train
                try:
                    then, report, why = self._round(now, cohort, run)
                    record = self._record(then, report, absent, engine, started, why)
                    self.directory.append_round(record)
                except BaseException:
                    if written < now.round and not self.skipped.none_counted:
                        with suppress(OSError):  # a full disk: what went wrong first is what is told
                            self.store.save(now)
                    raise
                now = then
                self.store.drop_superseded(now.state)
                self.log(record)
                stop, last = self._told(record, now), now.round == federation.rounds
                due = now.round % self.experiment.run.checkpoint_every == 0
                best = "evaluation" in record and self.store.is_best(now.round)
                if last or stop or due or best or interrupted.is_set():
                    self.store.save(now)
                    written = now.round
                if not last and (stop or interrupted.is_set()):
                    raise Stopped(now.round) if stop else Interrupted(now.round)
        return now

    def _round(
        self, now: Checkpoint, cohort: Sequence[Client], run: RunClients
    ) -> tuple[Checkpoint, RoundReport, str | None]:
        """The next round; where it brings nothing, everything as it was, and why.

        Raises:
            NoUploadError: That was ``federation.patience`` times in turn.
        """
        private = None if self.account is None else self.account.private([c.id for c in cohort], now.round)
        try:
            state, params, report = federated_round(
                self.world.method,
                self.world.model,
                now.state,
                now.params,
                cohort,
                run,
                server=self.experiment.server,
                num_clients=len(self.world.population.ids),
                private=private,
            )
        except NoUploadError as error:
            self.on_warning(self.skipped.skip(now.round + 1, error))
            ids = tuple(client.id for client in cohort)
            report = RoundReport(ids, error.rejected, math.nan, error.bytes_down, error.bytes_up)
            return Checkpoint(now.round + 1, now.params, now.state), report, str(error)
        self.skipped.over()
        return Checkpoint(now.round + 1, params, state), report, None

    def _told(self, record: dict[str, Any], now: Checkpoint) -> bool:
        """Whether ``on_round`` wants the run to stop; what it raises otherwise costs no round."""
        try:
            return bool(self.on_round(record) == STOP)
        except StopIteration:
            return True
        except BaseException:  # its own mistake; or who looks on is gone: a closed pipe, a full disk
            self.store.save(now)
            raise

    def _record(
        self,
        now: Checkpoint,
        report: RoundReport,
        absent: frozenset[int],
        engine: Executor,
        started: float,
        skipped: str | None,
    ) -> dict[str, Any]:
        """The round's line of ``rounds.jsonl``, with an evaluation where one is due; ``skipped``: why it is."""
        rejected = {client: reason for client, reason in report.rejected.items() if client not in absent}
        for client, reason in rejected.items() if skipped is None else ():
            self.on_warning(f"round {now.round}: client {client} was rejected: {reason}")
        record: dict[str, Any] = {
            "round": now.round,
            **(_loss(report, self.account) if skipped is None else {"skipped_round": skipped}),
            "rejected": {str(client): reason for client, reason in rejected.items()},
            "bytes": {"down": report.bytes_down, "up": report.bytes_up},
        }
        if rejected or skipped is not None:  # else the seed gives them back
            record["participants"] = list(report.participants)
        if self.experiment.run.client_records:
            record["clients"] = client_records(report.clients, report.rejected)
        if self.experiment.federation.dropout:
            record["silent"] = sorted(absent)
        if now.round % self.experiment.evaluation.every == 0 or now.round == self.experiment.federation.rounds:
            population = self.world.population
            record["evaluation"] = evaluate(
                self.world.method,
                self.world.model,
                now.state,
                now.served,
                population.everyone(now.round),
                population.test_parts,
                engine.hits,
                self.experiment.evaluation.submodel_clients,
            )
        if self.account is not None:
            record["epsilon"] = self.account.spend(now.round - 1, report.participants)
        record["seconds"] = round(time.perf_counter() - started, 4)
        return record


def _loss(report: RoundReport, account: Account | None) -> dict[str, float]:
    """The training loss, which is the clients' own and under privacy on no record."""
    return {"loss": report.loss} if account is None else {}
