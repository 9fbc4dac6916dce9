"""What the server does: rounds through the strategy, the run directory, checkpoints, evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import torch
from flwr.serverapp import Grid
from torch import Tensor

from fedfibos.analysis.accuracy import Trial, answers, evaluate
from fedfibos.backend.determinism import reproducible
from fedfibos.common.norms import keeps_statistics
from fedfibos.data.finite import ADVICE, not_finite
from fedfibos.flower.accelerator import device_named
from fedfibos.flower.finished import Round, clients_of, limits_by_capacity
from fedfibos.flower.json_log import json_lines
from fedfibos.flower.messages import Member, arrays_of
from fedfibos.flower.metrics import Show, shown_metrics
from fedfibos.flower.strategy import LOG, SubmodelStrategy
from fedfibos.flower.task import FleetTask
from fedfibos.params import Params
from fedfibos.runs.checkpoint import Checkpoint, CheckpointStore
from fedfibos.runs.classes import rejected_classes, rejected_lines
from fedfibos.runs.client_table import client_records, write_clients
from fedfibos.runs.measures import measures_of
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory
from fedfibos.runs.same_experiment import FLEET_FREE
from fedfibos.runs.summary import summarise
from fedfibos.server.average import served
from fedfibos.soundness import first_state
from fedfibos.submodel import full
from fedfibos.trackers.tracker import Log, check_installed, tracked
from fedfibos.types import Dataset

Evaluate = Callable[[Round], dict[str, Any]]
"""The ``evaluation`` of a line of ``rounds.jsonl``."""

BATCH = 500


def serve(
    task: FleetTask, grid: Grid, out: Path, *, resume: bool = False, evaluation: Evaluate | None = None
) -> dict[str, Any]:
    """Run a task's rounds into a run directory.

    Args:
        task: What is run.
        grid: Flower's grid.
        out: The run directory.
        resume: Go on from the newest sound checkpoint, to the parameters of an uninterrupted run.
        evaluation: What to measure every so many rounds; None: nothing.

    Returns:
        The content of ``final.json``.

    Raises:
        NoUploadError: A round brought too few usable uploads, again and again; the checkpoint before it is kept.
    """
    with reproducible():
        return _Server(task, grid, out, resume, evaluation).run()


class _Server:
    """The rounds that are left, and what they are written to."""

    def __init__(self, task: FleetTask, grid: Grid, out: Path, resume: bool, evaluation: Evaluate | None) -> None:
        self.task, self.grid, self.evaluation = task, grid, evaluation
        _check_submodels(task)
        self.directory = RunDirectory.open(out, task.settings, resume=resume, free=FLEET_FREE)
        check_installed(task.federation.log)
        self.store = CheckpointStore(out, best=task.federation.best)
        checkpoint = self.store.load_latest(task.model.layout, LOG.warning, to_go_on=True) if resume else None
        if checkpoint is None:
            params = task.model.initial_params()
            checkpoint = Checkpoint(0, params, first_state(task.method, params))
        if checkpoint.round > task.federation.rounds:
            raise RecordError(
                f"{out} has {checkpoint.round} finished rounds: to go on, federation.rounds must be at least "
                f"{checkpoint.round}, got {task.federation.rounds}"
            )
        self.now, self.written = checkpoint, checkpoint.round
        self.directory.go_on(checkpoint.round, task.settings, LOG.warning)
        self.started = time.perf_counter()
        self.log: Log = lambda record: None
        self.show: Show = lambda record, connected: None

    def run(self) -> dict[str, Any]:
        """Run them; see :func:`serve`."""
        federation = self.task.federation
        strategy = SubmodelStrategy(
            self.task,
            state=self.now.state,
            first_round=self.now.round,
            past=self.directory.rounds(),
            on_round=self.finished,
        )
        watched = ExitStack()
        try:
            show = shown_metrics(federation.metrics_port, federation.metrics_host, federation.rounds)
            watched.enter_context(json_lines(LOG, federation.log_format == "json"))
            self.show = watched.enter_context(show)
            log = tracked(federation.log, self.directory.path, self.task.settings, self.now.round, LOG.warning)
            self.log = watched.enter_context(log)
            while (left := federation.rounds - self.now.round) > 0:  # a round that is tried again is one of them
                strategy.start(self.grid, arrays_of(self.now.params), num_rounds=left, timeout=federation.deadline)
        finally:
            if self.written < self.now.round:
                self.store.save(self.now)
            watched.close()
            if federation.client_records:
                write_clients(self.directory.path, LOG.warning)
        rounds = self.directory.rounds()
        final: dict[str, Any] = {"rounds": self.now.round, "params_sha256": self.now.params.sha256()}
        if self.task.privacy is not None and rounds:
            final |= {"epsilon": rounds[-1]["epsilon"], "delta": self.task.privacy.delta}
        if any("evaluation" in record for record in rounds):
            final |= summarise(rounds)
        if lost := rejected_classes(rounds, _took_part):
            final["rejected_classes"] = lost
            for line in rejected_lines(final):
                LOG.warning(line)
        self.directory.finish(final)
        return final

    def finished(self, done: Round) -> None:
        """Write a round down."""
        federation, report = self.task.federation, done.report
        record: dict[str, Any] = {
            "round": done.number,
            **({"loss": report.loss} if done.epsilon is None else {"epsilon": done.epsilon}),
            "participants": list(report.participants),
            "capacities": {str(client): done.roster[client].capacity for client in report.participants},
            "rejected": {str(client): reason for client, reason in report.rejected.items()},
            "bytes": {"down": report.bytes_down, "up": report.bytes_up},
            "bytes_by_client": {str(n): {"down": down, "up": up} for n, (down, up) in done.payloads.items()},
        }
        if federation.client_records:
            parts = {n: {**part, "down": done.payloads[n][0]} for n, part in report.clients.items()}
            record["clients"] = client_records(parts, report.rejected)
        record |= _events(done, bool(federation.extra))
        last = done.number == federation.rounds
        if self.evaluation is not None and (last or done.number % federation.evaluate_every == 0):
            record["evaluation"] = self.evaluation(done)
        record["seconds"] = round(time.perf_counter() - self.started, 4)
        self.started = time.perf_counter()
        self.directory.append_round(record)
        self.now = Checkpoint(done.number, done.params, done.state)  # not before: a checkpoint's rounds are on record
        LOG.info(
            "round %d of %d: %s, %s%d of %d clients, %d bytes down, %d up",
            done.number,
            federation.rounds,
            f"loss {report.loss:.4f}" if done.epsilon is None else f"epsilon {done.epsilon:.3g}",
            _accuracies(record),
            len(report.participants) - len(report.rejected),
            len(report.participants),
            report.bytes_down,
            report.bytes_up,
        )
        self.log(record)
        self.show(record, len(done.roster))
        best = "evaluation" in record and self.store.is_best(done.number)
        if last or best or done.number % federation.checkpoint_every == 0:
            self.store.save(self.now)
            self.written = done.number


def _events(done: Round, oversampled: bool) -> dict[str, Any]:
    """What happened besides to clients in a round, for its line; only of what there was."""
    by_client = {
        "dropped": done.dropped,
        "late": done.late,
        "left_out": done.left_out,
        "measured": done.measured,
        "keys": done.keys,
    }
    events: dict[str, Any] = {
        name: {str(client): what for client, what in sorted(of.items())}
        for name, of in by_client.items()
        if of or (name == "dropped" and oversampled)
    }
    present = {done.roster[client].capacity for client in done.report.participants}
    limits = {c: dict(of) for c, of in limits_by_capacity(done.roster.values()).items() if of and c in present}
    if limits:
        events["limits"] = {str(capacity): of for capacity, of in sorted(limits.items(), reverse=True)}
    if done.refused:
        events["refused"] = {f"node {node}": reason for node, reason in done.refused.items()}
    if done.skipped:
        events["skipped"] = list(done.skipped)
    return events


def _took_part(record: Mapping[str, Any]) -> list[tuple[int, float]]:
    """The participants of a line of ``rounds.jsonl``, each with its capacity in that round."""
    return [(int(client), capacity) for client, capacity in record["capacities"].items()]


def _check_submodels(task: FleetTask) -> None:
    """Raise ValueError where no client could take part, whatever its capacity: nobody is to be waited for then."""
    params, faults = task.model.initial_params(), set()
    state = first_state(task.method, params)
    for capacity in (0.75, 0.5):
        (client,) = clients_of(task, {0: Member(0, capacity, 1, 0)}, [0], 0)
        try:
            task.method.extract(task.model, state, params, client)
        except ValueError as error:
            faults.add(str(error).replace(f"capacity {capacity:g}", "any capacity"))  # the same fault at each
        else:
            return
    if len(faults) == 1:
        raise ValueError(f"no capacity has a submodel of this model: {faults.pop()}")


def _accuracies(record: Mapping[str, Any]) -> str:
    """``global 93.1 % (submodels 90.2 %), ``, where the round was evaluated."""
    if "evaluation" not in record:
        return ""
    found, text = record["evaluation"]["global"], measures_of(record["evaluation"])[0].text
    return f"global {text(found['full'])} (submodels {text(found['submodels']['mean'])}), "


def on_test_set(task: FleetTask, test: Dataset, calibration: Dataset | None = None) -> Evaluate:
    """Global accuracy, of the full model and of every connected capacity's submodels; local accuracy is the clients'.

    Where clients hold their scores, the server knows no submodel before it is told: the full model only.

    Raises:
        ValueError: Batch normalisation without training examples to recalibrate it on, no such device, or inputs that
            are not finite.
    """
    for what, data in (("test examples", test), ("calibration examples", calibration)):
        if data is not None and (found := not_finite(data, what, "the server's ", LOG.warning)):
            raise ValueError(f"the server's data: {found}; {ADVICE}")
    if keeps_statistics(task.model.module) and calibration is None:
        raise ValueError("a model with batch normalisation needs calibration data to be evaluated, got none")

    model = task.model.on(device_named(task.federation.device, "federation.device"))  # it copies parameters there

    def run(params: Params, trials: Any) -> Any:
        return (answers(model, params, trial, test, BATCH, calibration) for trial in trials)

    def evaluated(done: Round) -> dict[str, Any]:
        if task.federation.scores == "client":
            seen = next(run(served(done.state, done.params), [Trial(full(task.model.layout))])).T
            submodels: dict[str, Any] = {"mean": None}
            return {
                "metrics": model.task.described,
                "global": {"full": model.task.primary.of(seen), "submodels": submodels},
                "local": {"mean": None, "by_capacity": {}},
            }
        clients = clients_of(task, done.roster, list(done.roster), done.number)
        nothing = cast(Sequence[Tensor], dict.fromkeys(done.roster, torch.empty(0, dtype=torch.int64)))
        limit = task.federation.submodel_clients
        return evaluate(
            task.method, task.model, done.state, served(done.state, done.params), clients, nothing, run, limit
        )

    return evaluated
