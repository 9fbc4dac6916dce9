"""What the clients of the open round were sent, and what their answers are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flwr.app import Message, Metadata

from fedfibos.flower.messages import cost_in, payload_in, size_of
from fedfibos.flower.task import FleetTask
from fedfibos.method import ScoresUnits
from fedfibos.soundness import averageable, fault, signed_by
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Upload
from fedfibos.wire.coding import decode_upload
from fedfibos.wire.payload import WireError


@dataclass(frozen=True)
class Sent:
    """What one client was sent.

    Attributes:
        client: The client in this round.
        submodel: What it holds.
        token: Names the payload in the answer.
        metadata: Of the message, which itself is not kept: it is Flower's, and goes once it is sent.
        size: Bytes of the payload.
    """

    client: Client
    submodel: Submodel
    token: bytes
    metadata: Metadata
    size: int


@dataclass
class SentRound:
    """A round that has been sent out.

    Attributes:
        task: What is run.
        t: Round counter.
        cohort: Whom it went to.
        unasked: Client -> why it was sent nothing.
        sent: What the others were sent.
        answers: Client -> its answers.
    """

    task: FleetTask
    t: int
    cohort: Sequence[Client]
    unasked: Mapping[int, str] = field(default_factory=dict)
    sent: dict[int, Sent] = field(default_factory=dict)
    answers: dict[int, list[Message]] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, int]:
        """Message -> the client that it went to."""
        return {sent.metadata.message_id: client for client, sent in self.sent.items()}

    @property
    def unanswered(self) -> dict[str, int]:
        """The same, of those that have not answered."""
        return {message: client for message, client in self.asked.items() if not self.answers.get(client)}

    def take(self, replies: Iterable[Message]) -> int:
        """Sort the answers by client; how many answer none of the messages."""
        asked, strange = self.asked, 0
        self.answers = {client: [] for client in self.sent}
        for reply in replies:
            client = asked.get(reply.metadata.reply_to_message_id)
            if client is None:
                strange += 1
            else:
                self.answers[client].append(reply)
        return strange

    def forget(self) -> None:
        """Let go of the answers: they may be large."""
        self.sent, self.answers = {}, {}

    def payloads(self, before: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Client -> bytes to it and from it, with those of questions before."""
        sizes = dict(before)
        for client, sent in self.sent.items():
            down, up = sizes.get(client, (0, 0))
            sizes[client] = down + sent.size, up + sum(map(size_of, self.answers.get(client, ())))
        return sizes

    def outcomes(
        self, rejected: Mapping[int, str], dropped: Mapping[int, str]
    ) -> Iterator[tuple[Client, Upload | str]]:
        """The outcomes of all but the dropped, in the order of client ids, decoded one at a time.

        Args:
            rejected: Client -> why its answer is known to be no use.
            dropped: Clients whose work is not used.
        """
        for client in self.cohort:
            if client.id in dropped:
                continue
            given = self.answers.get(client.id, [])
            if client.id not in self.sent:
                yield client, self.unasked[client.id]
            elif client.id in rejected:
                yield client, rejected[client.id]
            elif len(given) != 1:
                yield client, f"it answered {len(given)} times" if given else no_answer(self.task)
            else:
                try:
                    yield client, self._decoded(client.id, given[0])
                except WireError as error:
                    yield client, str(error)

    def fault(self, client: int, reply: Message) -> str | None:
        """Why an answer is no upload that can be averaged; None where it is one."""
        try:
            upload = self._decoded(client, reply)
        except WireError as error:
            return str(error)
        return fault(upload, averageable(self.cohort), signed_by(self.task.method, self.task.model.task))

    def _decoded(self, client: int, reply: Message) -> Upload:
        method, model, payload, sent = self.task.method, self.task.model, payload_in(reply), self.sent[client]
        units = method.num_units(model) if isinstance(method, ScoresUnits) else 0
        signed = signed_by(method, model.task)
        upload = decode_upload(payload, client, self.t, sent.token, sent.submodel, model.layout, signed, units)
        seconds, memory = cost_in(reply)
        return replace(upload, seconds=seconds, memory=memory)


def no_answer(task: FleetTask) -> str:
    """Why a client that does not answer is rejected."""
    return f"no answer within {task.federation.deadline:g} s"
