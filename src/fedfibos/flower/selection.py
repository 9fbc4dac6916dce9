"""Masks that clients choose by scores of their own: one question to each of the cohort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedfibos.flower.loop import collect
from fedfibos.flower.messages import add_limit, payload_in, question, size_of
from fedfibos.flower.roster import Roster
from fedfibos.flower.task import FleetTask
from fedfibos.method import ClientScored
from fedfibos.round import Job
from fedfibos.submodel import budget
from fedfibos.types import Client, State
from fedfibos.wire.coding import decode_mask, encode_score
from fedfibos.wire.payload import WireError

SELECT = f"{MessageType.QUERY}.select"


@dataclass
class Selection:
    """The masks of a cohort, and who gave none.

    Attributes:
        task: What is run.
        rejected: Client -> why it has no mask, once :meth:`jobs` is through.
        payloads: Client -> bytes of the question's payload and of its answer's.
    """

    task: FleetTask
    rejected: dict[int, str] = field(default_factory=dict)
    payloads: dict[int, tuple[int, int]] = field(default_factory=dict)

    def jobs(
        self, grid: Grid, roster: Roster, cohort: Sequence[Client], state: State, counted: Mapping[int, int], late: str
    ) -> Iterator[Job]:
        """Ask every client for the mask that it chooses by its own score.

        Args:
            grid: Flower's grid.
            roster: Where the clients are.
            cohort: Whom to ask.
            state: The server's, which may hold a score that they blend with theirs.
            counted: Client -> round of its last upload that counted.
            late: Why a client that does not answer is rejected.
        """
        layout, seconds = self.task.model.layout, self.task.federation.deadline
        messages = {}
        for client in cohort:
            score = self._shared_score(client, state)
            asked = question(client.round, counted.get(client.id, -1), client.capacity, score)
            messages[client.id] = Message(
                add_limit(asked, seconds), dst_node_id=roster[client.id].node, message_type=SELECT
            )
        replies = {reply.metadata.reply_to_message_id: reply for reply in collect(grid, messages.values(), seconds)}
        for client in cohort:
            reply = replies.get(messages[client.id].metadata.message_id)
            self.payloads[client.id] = size_of(messages[client.id]), 0 if reply is None else size_of(reply)
            try:
                if reply is None:
                    raise WireError(late)
                # one coordinate a tensor at least, where every tensor has its share
                most = max(budget(client.capacity, layout.num_maskable), layout.num_maskable_tensors)
                yield client, decode_mask(payload_in(reply), client.id, client.round, most, layout)
            except WireError as error:
                self.rejected[client.id] = f"no mask: {error}"

    def _shared_score(self, client: Client, state: State) -> bytes | None:
        """The payload of the score that the server holds, where clients blend it with their own."""
        method = self.task.method
        if not (isinstance(method, ClientScored) and method.shares_a_score):
            return None
        return encode_score(client.id, client.round, method.shared_score(state), self.task.model.layout)
