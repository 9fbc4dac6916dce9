"""Which clients are there: one question to every node that is new."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedfibos.common.formatting import counted
from fedfibos.flower.messages import Member, member_in
from fedfibos.wire.payload import WireError

Roster = Mapping[int, Member]
"""Client id -> where it is, of the clients that are connected."""


class Enrolment:
    """Knows who is behind Flower's nodes.

    A SuperNode that starts again is a new node, unless Flower authenticates it: everything is keyed by the id that the
    client declares, and a later node takes an earlier one's place.
    """

    def __init__(
        self,
        grid: Grid,
        deadline: float,
        warn: Callable[[str], None],
        check: Callable[[Member], None] = lambda member: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Know nobody yet.

        Args:
            grid: Flower's grid.
            deadline: Seconds for an answer.
            warn: Called with who takes no part, and why.
            check: Raises ValueError where a client cannot take part as it declares itself.
            tell: Called with who has joined.
        """
        self.grid, self.deadline, self.warn, self.check, self.tell = grid, deadline, warn, check, tell
        self._members: dict[int, Member] = {}  # by node, in the order of meeting
        self.refused: dict[int, str] = {}
        """Node -> why it takes no part in this round."""
        self._told: dict[int, str] = {}
        self._joined: dict[int, Member] = {}  # also those that are asked again, which is no second joining
        self._silent: set[int] = set()
        self._twins: set[int] = set()

    def present(self) -> Roster:
        """The clients that are connected now."""
        nodes = set(self.grid.get_node_ids())
        self._members = {node: member for node, member in self._members.items() if node in nodes}
        if new := sorted(nodes - self._members.keys() - self.refused.keys()):
            self._ask(new)
        roster: dict[int, Member] = {}
        for member in self._members.values():
            if member.client in roster and member.client not in self._twins:
                self._twins.add(member.client)
                self.warn(f"two nodes say that they are client {member.client}: the later one is used")
            roster[member.client] = member
        return dict(sorted(roster.items()))

    def at_least(self, count: int, wait: float) -> Roster:
        """The clients that are connected, once there are ``count`` or ``wait`` seconds have passed.

        Nodes that could not take part before are asked again, once: what was wrong may have been mended. Those that did
        not answer are asked again only where clients are wanting, as each time takes as long as ``deadline``.
        """
        self.refused = {node: reason for node, reason in self.refused.items() if node in self._silent}
        end, waits = time.monotonic() + wait, False
        if len(self.present()) < count:
            self.refused = {node: reason for node, reason in self.refused.items() if node not in self._silent}
        while len(roster := self.present()) < count and time.monotonic() < end:
            if not waits:
                self.warn(f"{len(roster)} of {count} clients are connected, waiting up to {wait:g} s for the others")
                waits = True
            time.sleep(min(1.0, wait))
        return roster

    def ask_again(self, nodes: Iterable[int]) -> None:
        """Have nodes declare themselves anew: a restart may have changed who they are and what they can afford."""
        for node in nodes:
            self._members.pop(node, None)

    def _ask(self, nodes: list[int]) -> None:
        content = RecordDict({"question": ConfigRecord({})})
        messages = [Message(content, dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
        answers = {
            answer.metadata.reply_to_message_id: answer
            for answer in self.grid.send_and_receive(messages, timeout=self.deadline)
        }
        for message in messages:
            answer, node = answers.get(message.metadata.message_id), message.metadata.dst_node_id
            self._silent.discard(node)
            try:
                if answer is None:
                    self._silent.add(node)
                    raise WireError(f"it did not say who it is within {self.deadline:g} s")
                member = member_in(answer, node)
                self.check(member)
                self._members[node] = member
                if self._joined.get(node) != member:
                    self._joined[node] = member
                    examples = counted(member.examples, "example")
                    self.tell(f"client {member.client} joined: capacity {member.capacity:g}, {examples}")
            except ValueError as error:
                self.refused[node] = str(error)
                if self._told.get(node) != str(error):
                    self._told[node] = str(error)
                    self.warn(f"node {node} takes no part: {error}")
