"""Which clients are there: one question to every node that is new."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedfibos.common.formatting import count_of
from fedfibos.flower.loop import collect
from fedfibos.flower.measured import Measured
from fedfibos.flower.messages import NOT_NOW, Member, add_limit, add_note, add_outline, member_in, who_are_you
from fedfibos.wire.payload import WireError

Roster = Mapping[int, Member]
"""Client id -> where it is, of the clients that are connected."""


class Enrolment:
    """Knows who is behind Flower's nodes.

    A SuperNode that starts again is a new node, unless Flower authenticates it: everything is keyed by the number that
    the client declares. A number is one node's as long as that node is connected; another that declares it is refused.
    """

    def __init__(
        self,
        grid: Grid,
        deadline: float,
        warn: Callable[[str], None],
        check: Callable[[Member], None] = lambda member: None,
        tell: Callable[[str], None] = lambda text: None,
        bound: Mapping[int, str] | None = None,
        outline: bytes | None = None,
        measured: Measured | None = None,
        note: Callable[[int], str | None] = lambda client: None,
    ) -> None:
        """Know nobody yet.

        Args:
            grid: Flower's grid.
            deadline: Seconds for an answer.
            warn: Called with who takes no part, and why.
            check: Raises ValueError where a client cannot take part as it declares itself.
            tell: Called with who has joined.
            bound: Client -> fingerprint of the key that its number belongs to, also when its node is away; None: a
                number is free when its node has gone.
            outline: The model's, for clients of slices.
            measured: Finds the capacities of clients that give limits; None: what they say is taken.
            note: What a client is to be told of its work before; called once.
        """
        self.grid, self.deadline, self.warn, self.check, self.tell = grid, deadline, warn, check, tell
        self._outline, self._measured, self._note = outline, measured, note
        self._members: dict[int, Member] = {}  # by node, in the order of meeting
        self._capacities: dict[int, float] = {}  # by node, of those that measure what they can afford
        self.refused: dict[int, str] = {}
        """Node -> why it takes no part in this round."""
        self._told: dict[int, str] = {}
        self._joined: dict[int, Member] = {}  # also those that are asked again, which is no second joining
        self._silent: set[int] = set()
        self._owners: dict[int, int] = {}  # client -> the connected node that its number belongs to
        self._fingerprints: dict[int, str] = {}  # of the keys of the nodes that are connected
        self._bound = None if bound is None else dict(bound)

    def present(self) -> Roster:
        """The clients that are connected now."""
        nodes = self._connected()
        self._members = {node: member for node, member in self._members.items() if node in nodes}
        self._owners = {client: node for client, node in self._owners.items() if node in nodes}
        if new := sorted(nodes - self._members.keys() - self.refused.keys()):
            self._ask(new)
        return {member.client: member for member in sorted(self._members.values(), key=lambda member: member.client)}

    def keys(self, clients: Iterable[int]) -> dict[int, str]:
        """Client -> fingerprint of its node's key, as far as Flower's grid tells."""
        nodes = {client: self._owners[client] for client in clients if client in self._owners}
        return {client: self._fingerprints[node] for client, node in nodes.items() if node in self._fingerprints}

    def _connected(self) -> set[int]:
        """The nodes that are connected; what their keys are is noted, where the grid tells."""
        get_nodes = getattr(self.grid, "get_nodes", None)  # of Flower's grid over HTTP, and no part of its interface
        if get_nodes is None:
            return set(self.grid.get_node_ids())
        infos = {info.node_id: bytes(info.public_key) for info in get_nodes()}
        self._fingerprints = {node: hashlib.sha256(key).hexdigest()[:16] for node, key in infos.items() if key}
        return set(infos)

    def at_least(self, count: int, wait: float) -> Roster:
        """The clients that are connected, once there are ``count`` or ``wait`` seconds have passed.

        Devices that refuse for now count as come: the others are not kept waiting for them.

        Nodes that could not take part before are asked again, once: what was wrong may have been mended. Those that did
        not answer are asked again only where clients are wanting, as each time takes as long as ``deadline``.
        """
        self.refused = {node: reason for node, reason in self.refused.items() if node in self._silent}
        end, waits = time.monotonic() + wait, False
        if len(self.present()) < count:
            self.refused = {node: reason for node, reason in self.refused.items() if node not in self._silent}
        while len(roster := self.present()) + self._vetoed() < count and time.monotonic() < end:
            if not waits:
                self.warn(f"{len(roster)} of {count} clients are connected, waiting up to {wait:g} s for the others")
                waits = True
            time.sleep(min(1.0, wait))
        return roster

    def _vetoed(self) -> int:
        """Nodes that are there and say that they will not take part now: waiting brings none of them."""
        return sum(NOT_NOW in reason for reason in self.refused.values())

    def ask_again(self, nodes: Iterable[int]) -> None:
        """Have nodes declare themselves anew: a restart may have changed who they are and what they can afford."""
        for node in nodes:
            self._members.pop(node, None)

    def _ask(self, nodes: list[int]) -> None:
        messages = [
            Message(
                add_outline(add_limit(self._question(node), self.deadline), self._outline),
                dst_node_id=node,
                message_type=MessageType.QUERY,
            )
            for node in nodes
        ]
        answers = {
            answer.metadata.reply_to_message_id: answer for answer in collect(self.grid, messages, self.deadline)
        }
        for message in messages:
            answer, node = answers.get(message.metadata.message_id), message.metadata.dst_node_id
            self._silent.discard(node)
            try:
                if answer is None:
                    self._silent.add(node)
                    raise WireError(f"it did not say who it is within {self.deadline:g} s")
                member = member_in(answer, node)
                self._own(member)
                if self._measured is not None:
                    member = self._measured.member(member)
                self.check(member)
                if member.measured:
                    self._capacities[node] = member.capacity
                self._members[node] = member
                self._told.pop(node, None)
                if self._joined.get(node) != member:
                    self._joined[node] = member
                    examples = count_of(member.examples, "example")
                    self.tell(f"client {member.client} joined: capacity {member.capacity:g}, {examples}")
            except ValueError as error:
                self.refused[node] = str(error)
                if self._told.get(node) != str(error):
                    self._told[node] = str(error)
                    self.warn(f"node {node} takes no part: {error}")

    def _question(self, node: int) -> RecordDict:
        fits = self._measured is not None and self._measured.fits
        note = self._note(self._joined[node].client) if node in self._joined else None
        return add_note(who_are_you(self._told.get(node), fits=fits, capacity=self._capacities.get(node)), note)

    def _own(self, member: Member) -> None:
        """Give a client's number to its node.

        Raises:
            WireError: It is another's.
        """
        client, node = member.client, member.node
        owner, key = self._owners.get(client, node), self._fingerprints.get(node, "")
        if owner != node:
            raise WireError(
                f"client {client} is node {owner}, which is connected: give each device a client-id of its own"
            )
        if self._bound is not None and self._bound.setdefault(client, key) != key:
            raise WireError(
                f"client {client} belongs to the key {self._bound[client]}, not to {key or 'a node without'}: give "
                "each device a client-id of its own; where it has a new key, go on with federation.bind_keys = false"
            )
        self._owners = {other: at for other, at in self._owners.items() if at != node} | {client: node}
