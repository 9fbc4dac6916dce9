"""The federated round as a Flower strategy: sample, extract and encode; decode, update and aggregate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, Metadata, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedfibos.analysis.cautions import cautions
from fedfibos.flower.attempts import Attempts
from fedfibos.flower.finished import Round, clients_of
from fedfibos.flower.lean import SentOutline
from fedfibos.flower.messages import (
    Member,
    add_limit,
    add_outline,
    arrays_of,
    cost_in,
    params_in,
    payload_in,
    payload_record,
    size_of,
)
from fedfibos.flower.private import FleetAccount
from fedfibos.flower.quarantine import Quarantine
from fedfibos.flower.roster import Enrolment, Roster
from fedfibos.flower.selection import Selection
from fedfibos.flower.task import FleetTask
from fedfibos.method import ScoresUnits
from fedfibos.params import Params
from fedfibos.round import Job, NoUploadError, merge, sample, submodels, with_corrections
from fedfibos.scores.rows import MemoryRows
from fedfibos.soundness import first_state, signed_by
from fedfibos.submodel import Submodel
from fedfibos.types import Client, State, Upload
from fedfibos.wire.coding import decode_upload, encode_download
from fedfibos.wire.envelope import token_of
from fedfibos.wire.payload import WireError

LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class _Sent:
    """What one client was sent in the round that is open."""

    client: Client
    submodel: Submodel
    token: bytes
    metadata: Metadata
    size: int


class SubmodelStrategy(Strategy):
    """Federated rounds with a submodel for every client, through Flower's ``Strategy.start``.

    Sampling, submodels, averages and server state are those of :mod:`fedfibos.round`, keyed by the clients' own ids.
    What a client sends that is not exactly an answer to what it was sent is rejected, with the reason, and the round
    goes on with the others.
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
        self._cohort: list[Client] = []
        self._sent: list[_Sent] = []
        self._selection, self._outline = Selection(task), SentOutline(task)
        self._enrolment: Enrolment | None = None
        self._roster: Roster = {}
        self._warned: frozenset[float] = frozenset()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample the cohort, extract every client's submodel and encode it."""
        task, federation = self.task, self.task.federation
        self._params = params_in(arrays, task.model.layout)
        if self._enrolment is None:
            bound = self._keys if federation.bind_keys else None
            outline = self._outline.at_enrolment(self.state, self._params)
            self._enrolment = Enrolment(grid, federation.deadline, LOG.warning, self._check, LOG.info, bound, outline)
        self._roster = self._gathered(self._enrolment)
        self._cohort, self._selection = self._sample(), Selection(task)
        self._warn_of_fleet()
        jobs = self._submodels()
        if federation.scores == "client":
            jobs = self._selection.jobs(grid, self._roster, self._cohort, self.state, self.counted, self._no_answer())
        self._sent, messages = [], []
        for client, submodel in with_corrections(jobs, self.state, self._params, self._fleet()):
            payload = encode_download(client, submodel, self._params, task.model)
            content = add_limit(payload_record(payload), federation.deadline)
            content = add_outline(content, self._outline.beside(submodel))
            message = Message(content, dst_node_id=self._roster[client.id].node, message_type=MessageType.TRAIN)
            messages.append(message)
            # Without the message: the list is Flower's, which lets go of it once all are sent.
            self._sent.append(_Sent(client, submodel, token_of(payload), message.metadata, len(payload)))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode, reject what is unsound, update and aggregate.

        Fewer than ``min_participants`` usable uploads are no round: nothing is returned, and it is tried again.

        Raises:
            NoUploadError: That happened ``patience`` times in turn.
        """
        assert self._params is not None, "aggregate_train before configure_train"
        answers: dict[int, list[Message]] = {sent.client.id: [] for sent in self._sent}
        asked = {sent.metadata.message_id: sent.client.id for sent in self._sent}
        for reply in replies:
            client = asked.get(reply.metadata.reply_to_message_id)
            if client is None:
                LOG.warning("round %d: an answer to none of its messages was ignored", self.t + 1)
            else:
                answers[client].append(reply)
        payloads = dict(self._selection.payloads)
        for sent in self._sent:
            down, up = payloads.get(sent.client.id, (0, 0))
            payloads[sent.client.id] = down + sent.size, up + sum(map(size_of, answers[sent.client.id]))
        down, up = (sum(sizes) for sizes in zip(*payloads.values(), strict=True)) if payloads else (0, 0)
        participants, least = [client.id for client in self._cohort], self.task.federation.min_participants
        try:
            state, params, report = merge(
                self.task.method,
                self.state,
                self._params,
                self._cohort,
                self._outcomes(answers),
                self.task.server,
                self._fleet(),
                self.task.model.task,
                None if self._account is None else self._account.private(self._cohort),
            )
        except NoUploadError as error:
            self._ended(participants, error.rejected)
            self.attempts.skip(self.t + 1, str(error), participants, error.rejected, (down, up))
            return None, None
        self._ended(participants, report.rejected)
        usable = [client for client in report.participants if client not in report.rejected]
        if len(usable) < least:
            reasons = "; ".join(report.rejected.values())
            reason = f"{least} usable uploads are wanted, got {len(usable)}: {reasons}"
            self.attempts.skip(self.t + 1, reason, participants, report.rejected, (down, up))
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
            )
        )
        return arrays_of(params), MetricRecord({"loss": report.loss} if epsilon is None else {"epsilon": epsilon})

    def _ended(self, participants: Sequence[int], rejected: Mapping[int, str]) -> None:
        """Say who was rejected, ask them anew who they are, and remember it of them."""
        for client, reason in rejected.items():
            LOG.warning("round %d: client %d was rejected: %s", self.t + 1, client, reason)
        for line in self.quarantine.note(self.t, participants, rejected):
            LOG.warning(line)
        if self._enrolment is not None:
            self._enrolment.ask_again(self._roster[client].node for client in rejected)
        self._sent = []

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

    def _gathered(self, enrolment: Enrolment) -> Roster:
        """The clients that are connected, once there are enough."""
        federation = self.task.federation
        while True:
            roster = enrolment.at_least(federation.cohort, federation.wait)
            if len(roster) >= federation.min_participants:
                return roster
            reasons = "".join(f"; {reason}" for reason in sorted(set(enrolment.refused.values()))[:3])
            self.attempts.skip(
                self.t + 1,
                f"{federation.min_participants} clients must be connected, "
                f"got {len(roster)} within {federation.wait:g} s{reasons}",
            )

    def _sample(self) -> list[Client]:
        """The cohort: sampled over the sorted ids of the clients that are connected and not left out.

        Where the round is tried again, of those that have not failed in it, if they are enough for a cohort. Nobody is
        left out where too few would be left.
        """
        task, federation = self.task, self.task.federation
        left_out, failed = self.quarantine.out(self.t), self.attempts.failed
        ids = list(self._roster)
        sound = [n for n in ids if n not in left_out]
        others = [n for n in sound if n not in failed]
        pool = others if len(others) >= min(federation.cohort, len(sound)) else sound
        if len(pool) < federation.min_participants:
            pool = ids
        self.left_out = {n: why for n, why in left_out.items() if n in self._roster and n not in pool}
        chosen = [pool[position] for position in sample(len(pool), federation.cohort, task.seed, self.t)]
        return clients_of(task, self._roster, chosen, self.t)

    def _check(self, member: Member) -> None:
        """Raise ValueError where the method has no submodel for the client (a slice narrower than one channel).

        What it has of the model that no round sends may differ in the last bit from one machine to another, or be
        another model's: that is for somebody to look at.
        """
        assert self._params is not None
        if member.untrained != self.task.untrained_sha256:
            LOG.warning(
                "client %d has other %s than the server: build the model from a fixed seed and the same files",
                member.client,
                "initial values, frozen weights or buffers"
                if self.task.federation.scores == "client"
                else "frozen weights or buffers",
            )
        weighting = self.task.federation.weighting
        if isinstance(weighting, tuple) and member.client >= len(weighting):
            raise ValueError(
                f"federation.weighting has {len(weighting)} numbers, clients 0 to {len(weighting) - 1}: it must have "
                f"one for client {member.client} too"
            )
        client = clients_of(self.task, {member.client: member}, [member.client], self.t)[0]
        self.task.method.extract(self.task.model, self.state, self._params, client)

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

    def _submodels(self) -> Iterator[Job]:
        assert self._params is not None
        return submodels(self.task.method, self.task.model, self.state, self._params, self._cohort)

    def _outcomes(self, answers: dict[int, list[Message]]) -> Iterator[tuple[Client, Upload | str]]:
        """The cohort's outcomes in the order of client ids, decoded one at a time."""
        sent = {sent.client.id: sent for sent in self._sent}
        for client in self._cohort:
            if client.id not in sent:
                yield client, self._selection.rejected[client.id]
                continue
            given = answers[client.id]
            if len(given) != 1:
                yield client, f"it answered {len(given)} times" if given else self._no_answer()
                continue
            try:
                yield client, self._decoded(sent[client.id], given[0])
            except WireError as error:
                yield client, str(error)

    def _decoded(self, sent: _Sent, reply: Message) -> Upload:
        method, model, payload = self.task.method, self.task.model, payload_in(reply)
        units = method.num_units(model) if isinstance(method, ScoresUnits) else 0
        upload = decode_upload(
            payload,
            sent.client.id,
            self.t,
            sent.token,
            sent.submodel,
            model.layout,
            signed_by(method, model.task),
            units,
        )
        seconds, memory = cost_in(reply)
        return replace(upload, seconds=seconds, memory=memory)

    def _no_answer(self) -> str:
        return f"no answer within {self.task.federation.deadline:g} s"
