"""The federated round as a Flower strategy: sample, extract and encode; decode, update and aggregate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, Metadata, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedfibos.analysis.cautions import cautions
from fedfibos.flower.messages import Member, payload_in, payload_record, question
from fedfibos.flower.roster import Enrolment, Roster
from fedfibos.flower.task import Task
from fedfibos.method import ClientScored, ScoresUnits
from fedfibos.params import Layout, Params
from fedfibos.round import Job, NoUploadError, RoundReport, merge, sample, submodels
from fedfibos.scores.rows import MemoryRows
from fedfibos.soundness import first_state, signed_by
from fedfibos.submodel import Submodel, budget
from fedfibos.types import Client, State, Upload
from fedfibos.wire.coding import decode_mask, decode_upload, encode_download, encode_score, token_of
from fedfibos.wire.payload import WireError

SELECT = f"{MessageType.QUERY}.select"
LOG = logging.getLogger("flwr")


@dataclass(frozen=True)
class _Sent:
    """What one client was sent in the round that is open."""

    client: Client
    submodel: Submodel
    token: bytes
    metadata: Metadata
    size: int


@dataclass(frozen=True)
class Round:
    """A finished round, as the strategy reports it.

    Attributes:
        number: Finished rounds.
        params: Global parameters after it.
        state: Server state after it.
        report: Who took part, who was rejected, bytes of the payloads each way.
        roster: The clients that were connected.
        payloads: Client -> bytes of the payloads to it and from it.
        refused: Node -> why its client took no part.
    """

    number: int
    params: Params
    state: State
    report: RoundReport
    roster: Roster
    payloads: Mapping[int, tuple[int, int]]
    refused: Mapping[int, str] = field(default_factory=dict)


class SubmodelStrategy(Strategy):
    """Federated rounds with a submodel for every client, through Flower's ``Strategy.start``.

    Sampling, submodels, averages and server state are those of :mod:`fedfibos.round`, keyed by the clients' own ids.
    What a client sends that is not exactly an answer to what it was sent is rejected, with the reason, and the round
    goes on with the others.
    """

    def __init__(
        self,
        task: Task,
        *,
        state: State | None = None,
        first_round: int = 0,
        counted: dict[int, int] | None = None,
        on_round: Callable[[Round], None] = lambda finished: None,
    ) -> None:
        """Start, or go on.

        Args:
            task: What is run.
            state: Server state after ``first_round`` rounds; None: before the first.
            first_round: Finished rounds.
            counted: Client -> round of its last upload that counted (for scores that the clients hold).
            on_round: Called after every round.
        """
        self.task, self.t, self.on_round = task, first_round, on_round
        self.state = first_state(task.method, task.model.initial_params()) if state is None else state
        self.counted = dict(counted or {})
        self.rejected: dict[int, str] = {}
        self._params: Params | None = None
        self._cohort: list[Client] = []
        self._sent: list[_Sent] = []
        self._selecting: dict[int, tuple[int, int]] = {}  # bytes of a question for a mask, and of its answer
        self._enrolment: Enrolment | None = None
        self._roster: Roster = {}
        self._warned: frozenset[float] = frozenset()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Sample the cohort, extract every client's submodel and encode it."""
        task, federation = self.task, self.task.federation
        if self._enrolment is None:
            self._enrolment = Enrolment(grid, federation.deadline, LOG.warning, self._check, LOG.info)
        self._params = params_in(arrays, task.model.layout)
        self._roster = self._enrolment.at_least(federation.cohort, federation.wait)
        if len(self._roster) < federation.min_participants:
            raise NoUploadError(
                f"round {self.t + 1}: {federation.min_participants} clients must be connected, "
                f"got {len(self._roster)} within {federation.wait:g} s"
            )
        self._cohort = self._sample()
        self.rejected, self._selecting = {}, {}
        self._warn_of_fleet()
        jobs = self._own_masks(grid) if federation.scores == "client" else self._submodels()
        self._sent, messages = [], []
        for client, submodel in jobs:
            payload = encode_download(client, submodel, self._params, task.model)
            message = Message(
                payload_record(payload), dst_node_id=self._roster[client.id].node, message_type=MessageType.TRAIN
            )
            messages.append(message)
            # Without the message: the list is Flower's, which lets go of it once all are sent.
            self._sent.append(_Sent(client, submodel, token_of(payload), message.metadata, len(payload)))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode, reject what is unsound, update and aggregate.

        Raises:
            NoUploadError: Fewer than ``min_participants`` usable uploads; the round does not count.
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
        payloads = dict(self._selecting)
        for sent in self._sent:
            down, up = payloads.get(sent.client.id, (0, 0))
            payloads[sent.client.id] = down + sent.size, up + sum(map(_size, answers[sent.client.id]))
        down, up = (sum(sizes) for sizes in zip(*payloads.values(), strict=True)) if payloads else (0, 0)
        state, params, report = merge(self.task.method, self.state, self._params, self._cohort, self._outcomes(answers))
        report = replace(report, bytes_down=down, bytes_up=up)
        for client, reason in report.rejected.items():
            LOG.warning("round %d: client %d was rejected: %s", self.t + 1, client, reason)
        usable = [client for client in report.participants if client not in report.rejected]
        if len(usable) < self.task.federation.min_participants:
            raise NoUploadError(
                f"round {self.t + 1}: {self.task.federation.min_participants} usable uploads are wanted, "
                f"got {len(usable)}: " + "; ".join(report.rejected.values())
            )
        if self.task.federation.scores == "client":
            state = replace(state, rows=MemoryRows())  # an estimate that came along for a shared score is not kept
        self.counted |= dict.fromkeys(usable, self.t)
        self.state, self.t, self._sent = state, self.t + 1, []
        refused = dict(self._enrolment.refused) if self._enrolment is not None else {}
        if self._enrolment is not None:
            self._enrolment.ask_again(self._roster[client].node for client in report.rejected)
        self.on_round(Round(self.t, params, state, report, self._roster, payloads, refused))
        return arrays_of(params), MetricRecord({"loss": report.loss})

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

    def _sample(self) -> list[Client]:
        """The cohort: sampled over the sorted ids of the clients that are connected."""
        task, federation = self.task, self.task.federation
        ids = list(self._roster)
        chosen = [ids[position] for position in sample(len(ids), federation.cohort, task.seed, self.t)]
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

    def _submodels(self) -> Iterator[Job]:
        assert self._params is not None
        return submodels(self.task.method, self.task.model, self.state, self._params, self._cohort)

    def _own_masks(self, grid: Grid) -> Iterator[Job]:
        """Ask every client for the mask that it chooses by its own score."""
        layout = self.task.model.layout
        messages = {
            client.id: Message(
                question(self.t, self.counted.get(client.id, -1), client.capacity, self._shared_score(client)),
                dst_node_id=self._roster[client.id].node,
                message_type=SELECT,
            )
            for client in self._cohort
        }
        replies = {
            reply.metadata.reply_to_message_id: reply
            for reply in grid.send_and_receive(list(messages.values()), timeout=self.task.federation.deadline)
        }
        for client in self._cohort:
            reply = replies.get(messages[client.id].metadata.message_id)
            self._selecting[client.id] = _size(messages[client.id]), 0 if reply is None else _size(reply)
            try:
                if reply is None:
                    raise WireError(self._no_answer())
                # one coordinate a tensor at least, where every tensor has its share
                most = max(budget(client.capacity, layout.num_maskable), layout.num_maskable_tensors)
                yield client, decode_mask(payload_in(reply), client.id, self.t, most, layout)
            except WireError as error:
                self.rejected[client.id] = f"no mask: {error}"

    def _shared_score(self, client: Client) -> bytes | None:
        """The payload of the score that the server holds, where clients blend it with their own."""
        method = self.task.method
        if not (isinstance(method, ClientScored) and method.shares_a_score):
            return None
        return encode_score(client.id, self.t, method.shared_score(self.state), self.task.model.layout)

    def _outcomes(self, answers: dict[int, list[Message]]) -> Iterator[tuple[Client, Upload | str]]:
        """The cohort's outcomes in the order of client ids, decoded one at a time."""
        sent = {sent.client.id: sent for sent in self._sent}
        for client in self._cohort:
            if client.id not in sent:
                yield client, self.rejected[client.id]
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
        return decode_upload(
            payload, sent.client.id, self.t, sent.token, sent.submodel, model.layout, signed_by(method), units
        )

    def _no_answer(self) -> str:
        return f"no answer within {self.task.federation.deadline:g} s"


def clients_of(task: Task, roster: Roster, ids: Sequence[int], t: int) -> list[Client]:
    """Those clients as they are in round t; their data stay with them."""
    members: list[Member] = list(roster.values())
    mean_size = sum(member.examples for member in members) / len(members)
    levels = [member.capacity for member in members]
    local = task.local.at_round(t, task.federation.rounds).with_levels(levels)
    uniform = task.federation.weighting == "uniform"
    return [
        Client(
            id=n,
            capacity=roster[n].capacity,
            round=t,
            seed=task.seed,
            local=local,
            weight=1.0 if uniform else roster[n].examples / mean_size,
            budget=task.federation.budget,
        )
        for n in ids
    ]


def arrays_of(params: Params) -> ArrayRecord:
    """Parameters as Flower's arrays, by name."""
    return ArrayRecord({name: Array(tensor.cpu().numpy()) for name, tensor in params.tensors().items()})


def params_in(arrays: ArrayRecord, layout: Layout) -> Params:
    """Inverse of :func:`arrays_of`.

    Raises:
        ValueError: Names or shapes are not the layout's.
    """
    tensors = [torch.from_numpy(arrays[name].numpy()) for name in layout.names if name in arrays]
    shapes = tuple(tuple(tensor.shape) for tensor in tensors)
    if shapes != layout.shapes or len(arrays) != len(layout.names):
        raise ValueError(f"the arrays must be the model's {len(layout.names)} parameters, got {len(arrays)} arrays")
    return Params(layout, torch.cat([tensor.reshape(-1) for tensor in tensors]))


def _size(message: Message) -> int:
    """Bytes of a message's payload."""
    try:
        return len(payload_in(message))
    except WireError:
        return 0
