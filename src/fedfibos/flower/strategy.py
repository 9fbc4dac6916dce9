"""The federated round as a Flower strategy: sample, extract and encode; decode, update and aggregate."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedfibos.analysis.cautions import cautions
from fedfibos.common.formatting import count_of
from fedfibos.flower.attempts import Attempts
from fedfibos.flower.cohort import check_member, choose
from fedfibos.flower.finished import Round, clients_of
from fedfibos.flower.lean import SentOutline
from fedfibos.flower.loop import run_rounds
from fedfibos.flower.measured import Measured
from fedfibos.flower.messages import Member, add_limit, add_note, add_outline, arrays_of, params_in, payload_record
from fedfibos.flower.notes import Notes
from fedfibos.flower.oversampled import Draw, Unanswered
from fedfibos.flower.private import FleetAccount
from fedfibos.flower.quarantine import Quarantine
from fedfibos.flower.roster import Enrolment, Roster
from fedfibos.flower.selection import Selection
from fedfibos.flower.sent import Sent, SentRound, no_answer
from fedfibos.flower.task import FleetTask
from fedfibos.params import Params
from fedfibos.round import NoUploadError, merge, submodels, with_corrections
from fedfibos.scores.rows import MemoryRows
from fedfibos.soundness import first_state
from fedfibos.types import Client, State
from fedfibos.wire.coding import encode_download
from fedfibos.wire.envelope import token_of

LOG = logging.getLogger("flwr")


class SubmodelStrategy(Strategy):
    """Federated rounds with a submodel for every client, through :meth:`start`.

    Its loop is :mod:`fedfibos.flower.loop` and not Flower's, which waits for every answer. Sampling, submodels,
    averages and server state are those of :mod:`fedfibos.round`, keyed by the clients' own ids. What a client sends
    that is not exactly an answer to what it was sent is rejected, with the reason, and the round goes on with the
    others.
    """

    def __init__(
        self,
        task: FleetTask,
        *,
        state: State | None = None,
        first_round: int = 0,
        past: Sequence[Mapping[str, Any]] = (),
        on_round: Callable[[Round], None] = lambda finished: None,
    ) -> None:
        """Start, or go on.

        Args:
            task: What is run.
            state: Server state after ``first_round`` rounds; None: before the first.
            first_round: Finished rounds.
            past: Lines of ``rounds.jsonl``, of those rounds: who failed, whose number belongs to which key, and which
                uploads counted last.
            on_round: Called after every round.
        """
        self.task, self.t, self.on_round = task, first_round, on_round
        self.state = first_state(task.method, task.model.initial_params()) if state is None else state
        self.counted = {
            client: line["round"] - 1
            for line in past
            for client in line["participants"]
            if str(client) not in line["rejected"]
        }
        self.quarantine = Quarantine(past)
        self.attempts = Attempts(task.federation)
        self._account = None if task.privacy is None else FleetAccount(task.privacy, task, past)
        self.left_out: dict[int, str] = {}
        self._keys = {int(client): key for line in reversed(past) for client, key in line.get("keys", {}).items()}
        self._params: Params | None = None
        self._round, self._sent_at = SentRound(task, first_round, ()), 0.0
        self._draw, self._unanswered, self._notes = Draw(0, {}, self._round.fault), Unanswered(), Notes(past)
        self._selection, self._outline = Selection(task), SentOutline(task)
        self._measured, self._due = Measured(task, past), set[int]()
        self._enrolment: Enrolment | None = None
        self._roster: Roster = {}
        self._warned: frozenset[float] = frozenset()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run rounds, each until enough uploads count; what ``on_round`` is told is the result.

        Args:
            grid: Flower's grid.
            initial_arrays: The global parameters.
            num_rounds: How many; one that is tried again is one of them.
            timeout: Seconds that clients have for an answer, at most ``federation.deadline``.
            train_config: Of no use here, as the two that follow: ``on_round`` evaluates.
            evaluate_config: See there.
            evaluate_fn: See there.
        """
        self.summary()
        seconds = min(timeout, self.task.federation.deadline)
        return Result(arrays=run_rounds(self, grid, initial_arrays, num_rounds, seconds))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sample the cohort, extract every client's submodel and encode it: a message as it is wanted."""
        task, federation = self.task, self.task.federation
        self._params = params = params_in(arrays, task.model.layout)
        if self._enrolment is None:
            bound = self._keys if federation.bind_keys else None
            outline = self._outline.at_enrolment(self.state, params)
            told = LOG.warning, self._check, LOG.info
            self._enrolment = Enrolment(
                grid, federation.deadline, *told, bound, outline, self._measured, self._notes.give
            )
        self._unanswered.look(grid)
        self._measure_again(self._enrolment)
        self._roster = self._gathered(self._enrolment)
        cohort, self._selection = self._sample(), Selection(task)
        self._warn_of_fleet()
        jobs = submodels(task.method, task.model, self.state, params, cohort)
        if federation.scores == "client":
            jobs = self._selection.jobs(grid, self._roster, cohort, self.state, self.counted, no_answer(task))
        self._round = SentRound(task, self.t, cohort, self._selection.rejected)
        for client, submodel in with_corrections(jobs, self.state, params, self._fleet()):
            payload = encode_download(client, submodel, params, task.model)
            content = add_limit(payload_record(payload), federation.deadline)
            content = add_outline(content, self._outline.beside(submodel))
            content = add_note(content, self._notes.give(client.id))
            message = Message(content, dst_node_id=self._roster[client.id].node, message_type=MessageType.TRAIN)
            self._round.sent[client.id] = Sent(client, submodel, token_of(payload), message.metadata, len(payload))
            yield message
        self._sent_at = time.monotonic()
        self._draw = Draw(federation.cohort_in(self.t), self._round.asked, self._round.fault)

    def enough(self, replies: list[Message]) -> bool:
        """Whether the uploads that count are as many as the round wants."""
        return self._draw.enough(replies)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode, reject what is unsound, update and aggregate.

        Fewer than ``min_participants`` usable uploads are no round: nothing is returned, and it is tried again.

        Raises:
            NoUploadError: That happened ``patience`` times in turn.
        """
        assert self._params is not None, "aggregate_train before configure_train"
        if self._round.take(replies):
            LOG.warning("round %d: an answer to none of its messages was ignored", self.t + 1)
        payloads = self._round.payloads(self._selection.payloads)
        down, up = (sum(sizes) for sizes in zip(*payloads.values(), strict=True)) if payloads else (0, 0)
        dropped, least = dict(sorted(self._draw.dropped.items())), self.task.federation.min_participants
        cohort = [client for client in self._round.cohort if client.id not in dropped]
        participants = [client.id for client in cohort]
        self._unanswered.leave(self._round.unanswered, self.t + 1, self._sent_at + self.task.federation.deadline)
        outcomes = self._round.outcomes(self._draw.rejected, dropped)
        try:
            state, params, report = merge(
                self.task.method,
                self.state,
                self._params,
                cohort,
                outcomes,
                self.task.server,
                self._fleet(),
                self.task.model.task,
                None if self._account is None else self._account.private(cohort),
            )
        except NoUploadError as error:
            self._ended(participants, error.rejected, dropped)
            self.attempts.skip(self.t + 1, str(error), participants, error.rejected, (down, up), dropped)
            return None, None
        self._ended(participants, report.rejected, dropped)
        usable = [client for client in report.participants if client not in report.rejected]
        if len(usable) < least:
            reasons = "; ".join(report.rejected.values())
            reason = f"{least} usable uploads are wanted, got {len(usable)}: {reasons}"
            self.attempts.skip(self.t + 1, reason, participants, report.rejected, (down, up), dropped)
            return None, None
        if self.task.federation.scores == "client":
            state = replace(state, rows=MemoryRows())  # an estimate that came along for a shared score is not kept
        self.counted |= dict.fromkeys(usable, self.t)
        epsilon = None if self._account is None else self._account.spend(participants, self.t)
        self.state, self.t = state, self.t + 1
        self.on_round(
            Round(
                self.t,
                params,
                state,
                replace(report, bytes_down=down, bytes_up=up),
                self._roster,
                payloads,
                dict(self._enrolment.refused) if self._enrolment is not None else {},
                self.attempts.over(),
                self.left_out,
                self._enrolment.keys(participants) if self._enrolment is not None else {},
                epsilon,
                dropped,
                self._unanswered.over(),
                self._measured.over(),
            )
        )
        return arrays_of(params), MetricRecord({"loss": report.loss} if epsilon is None else {"epsilon": epsilon})

    def _ended(self, participants: Sequence[int], rejected: Mapping[int, str], dropped: Mapping[int, str]) -> None:
        """Say who was rejected, ask them anew who they are, and remember it of them."""
        for client, reason in rejected.items():
            LOG.warning("round %d: client %d was rejected: %s", self.t + 1, client, reason)
        for client, reason in dropped.items():
            LOG.info("round %d: the work of client %d is not used: %s", self.t + 1, client, reason)
        self._notes.note(self.t + 1, participants, {**rejected, **dropped})
        for line in self.quarantine.note(self.t, participants, rejected):
            LOG.warning(line)
        if self._enrolment is not None:
            self._enrolment.ask_again(self._roster[client].node for client in rejected)
            for client, reason in rejected.items():
                self._measured.expect([client], f"round {self.t + 1}: {reason}")
        self._round.forget()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: the server evaluates."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Log what is run."""
        federation = self.task.federation
        LOG.info("\t%s, round %d of %d, cohort %d", self.task.method, self.t, federation.rounds, federation.cohort)

    def _measure_again(self, enrolment: Enrolment) -> None:
        """Ask devices anew what they can afford, on the schedule; one that is at work, when it no longer is."""
        every = self.task.federation.measure_every
        if every is not None and self.t and self.t % every == 0 and not self.attempts.skipped:
            self._due = {member.client for member in self._roster.values() if member.measured}
        now = self._due - self._unanswered.at_work().keys()
        self._due -= now
        self._measured.expect(now, f"every {count_of(every or 0, 'round')}")
        enrolment.ask_again(self._roster[client].node for client in now if client in self._roster)

    def _gathered(self, enrolment: Enrolment) -> Roster:
        """The clients that are connected, once there are enough."""
        federation = self.task.federation
        while True:
            roster = enrolment.at_least(federation.cohort_in(self.t), federation.wait)
            if len(roster) >= federation.min_participants:
                return roster
            reasons = "".join(f"; {reason}" for reason in sorted(set(enrolment.refused.values()))[:3])
            self.attempts.skip(
                self.t + 1,
                f"{federation.min_participants} clients must be connected, "
                f"got {len(roster)} within {federation.wait:g} s{reasons}",
            )

    def _sample(self) -> list[Client]:
        """The cohort and the extra clients."""
        kept_out = self._unanswered.at_work() | self.quarantine.out(self.t)
        chosen, self.left_out = choose(self.task, self.t, list(self._roster), kept_out, self.attempts.failed)
        return clients_of(self.task, self._roster, chosen, self.t)

    def _check(self, member: Member) -> None:
        assert self._params is not None
        check_member(self.task, member, self.t, self.state, self._params, LOG.warning)

    def _warn_of_fleet(self) -> None:
        """Say what does not suit the capacities that have come, once for each set of them."""
        capacities = frozenset(member.capacity for member in self._roster.values())
        if capacities == self._warned or self.task.federation.scores == "client":  # whose masks are not known here
            return
        self._warned = capacities
        assert self._params is not None
        fleet = clients_of(self.task, self._roster, list(self._roster), self.t)
        for line in cautions(self.task.method, self.task.model, self.state, self._params, fleet):
            LOG.warning(line)

    def _fleet(self) -> int:
        """How many clients the fleet has, for control variates: those connected and those that once took part."""
        return len({*self._roster, *self.state.variates.clients()})
