"""Payloads inside Flower's messages, and what a client declares of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedfibos.channels.costs import Bounded
from fedfibos.common.validation import checked
from fedfibos.config.devices import Device
from fedfibos.flower.failures import failure_of, one_line
from fedfibos.params import Layout, Params
from fedfibos.wire.payload import WireError

PAYLOAD, ABOUT, QUESTION, LIMIT, OUTLINE, COST = "payload", "about", "question", "limit", "outline", "cost"
NOTE, DEVICE = "note", "device"
_LIMITS = ("memory", "macs_per_second", "examples_per_second", "seconds", "bytes")
_TYPE = "fedfibos"

NOT_NOW = "it is not available now"
"""How a device's own veto begins: no failure."""


@dataclass(frozen=True)
class Member:
    """A client as it declares itself.

    Attributes:
        client: Its stable id: the key of everything that the server keeps of it.
        capacity: γ in (0, 1].
        examples: Number of its training examples.
        node: Flower's id of its SuperNode, which changes when the SuperNode is started again, unless Flower
            authenticates it.
        untrained: Digest of what it has of the model that no round sends.
        device: Its limits, where the server is to find the capacity by them.
        measured: Whether its capacity, or the speed in its limits, was measured, and may be measured again.
        limits: What bounds its slices in every round, once the server has found its capacity.
    """

    client: int
    capacity: float
    examples: int
    node: int
    untrained: str = ""
    device: Device | None = None
    measured: bool = False
    limits: tuple[tuple[Bounded, int], ...] = ()


def payload_record(payload: bytes) -> RecordDict:
    """A payload as a message's content: one array of bytes, which Flower cuts into chunks."""
    return RecordDict({PAYLOAD: ArrayRecord({PAYLOAD: Array("uint8", (len(payload),), _TYPE, payload)})})


def payload_in(message: Message) -> bytes:
    """The payload of a message.

    Raises:
        WireError: It has none; carries its sender's reason where it gives one.
    """
    if message.has_error():
        raise WireError(failure_of(message.error))
    about, record = message.content.get(ABOUT), message.content.get(PAYLOAD)
    if isinstance(about, ConfigRecord) and isinstance(about.get("refused"), str):
        raise WireError(one_line(str(about["refused"])))
    if not isinstance(record, ArrayRecord) or list(record) != [PAYLOAD] or record[PAYLOAD].stype != _TYPE:
        raise WireError(f"a message must hold one array {PAYLOAD!r} of type {_TYPE!r}")
    return record[PAYLOAD].data


def add_limit(content: RecordDict, seconds: float) -> RecordDict:
    """A question's content, with the seconds that the server waits for the answer."""
    content[LIMIT] = ConfigRecord({"seconds": float(seconds)})
    return content


def limit_in(message: Message) -> float | None:
    """Seconds that the server waits for the answer; None where it does not say, or says what cannot be."""
    limit = message.content.get(LIMIT)
    seconds = limit.get("seconds") if isinstance(limit, ConfigRecord) else None
    return seconds if isinstance(seconds, float) and 0 < seconds < math.inf else None


def add_outline(content: RecordDict, outline: bytes | None) -> RecordDict:
    """A question's content, with the model's outline (:mod:`fedfibos.wire.outline`) where there is one."""
    if outline is not None:
        content[OUTLINE] = ConfigRecord({OUTLINE: outline})
    return content


def add_note(content: RecordDict, note: str | None) -> RecordDict:
    """A question's content, with what became of the client's work before, where there is something to say."""
    if note is not None:
        content[NOTE] = ConfigRecord({NOTE: note})
    return content


def note_in(message: Message) -> str | None:
    """What the server says of this client's work before."""
    record = message.content.get(NOTE)
    note = record.get(NOTE) if isinstance(record, ConfigRecord) else None
    return one_line(note) if isinstance(note, str) else None


def with_cost(content: RecordDict, seconds: float | None, memory: int | None) -> RecordDict:
    """An answer's content, with how long its training took and the bytes that its process held at most."""
    spent: dict[str, float | int] = {} if seconds is None else {"seconds": float(seconds)}
    content[COST] = ConfigRecord({**spent, **({} if memory is None else {"memory": memory})})
    return content


def cost_in(message: Message) -> tuple[float | None, int | None]:
    """Seconds and bytes as a client says them of its training; None where it does not, or says what cannot be."""
    cost = message.content.get(COST)
    seconds, memory = (cost.get(key) if isinstance(cost, ConfigRecord) else None for key in ("seconds", "memory"))
    return (
        seconds if isinstance(seconds, float) and 0 <= seconds < math.inf else None,
        memory if isinstance(memory, int) and 0 <= memory < 2**63 else None,
    )


def outline_in(message: Message) -> bytes | None:
    """The outline that comes with a question."""
    record = message.content.get(OUTLINE)
    outline = record.get(OUTLINE) if isinstance(record, ConfigRecord) else None
    return outline if isinstance(outline, bytes) else None


def size_of(message: Message) -> int:
    """Bytes of a message's payload."""
    try:
        return len(payload_in(message))
    except WireError:
        return 0


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


def refusal(reason: str) -> RecordDict:
    """Why there is no payload, in one line."""
    return RecordDict({ABOUT: ConfigRecord({"refused": reason})})


def who_are_you(refused: str | None, *, fits: bool = False, capacity: float | None = None) -> RecordDict:
    """Ask a node to declare itself.

    Args:
        refused: Why it took no part before.
        fits: Whether the server finds a capacity for its limits.
        capacity: The one that it has had so far, to measure its speed with.
    """
    asked = ConfigRecord({} if refused is None else {"refused": refused})
    if fits:
        asked["fits"] = True
    if capacity is not None:
        asked["capacity"] = capacity
    return RecordDict({QUESTION: asked})


def fits_in(message: Message) -> tuple[bool, float | None]:
    """Whether the server finds a capacity for a device's limits, and the one that it has had so far."""
    asked = message.content.get(QUESTION)
    if not isinstance(asked, ConfigRecord):
        return False, None
    capacity = asked.get("capacity")
    return asked.get("fits") is True, capacity if isinstance(capacity, float) and 0 < capacity <= 1 else None


def refused_in(message: Message) -> str | None:
    """Why the server let this node take no part before; None where it did not say."""
    asked = message.content.get(QUESTION)
    reason = asked.get("refused") if isinstance(asked, ConfigRecord) else None
    return one_line(reason) if isinstance(reason, str) else None


def declaration(
    client: int,
    capacity: float,
    examples: int,
    untrained: str,
    device: Device | None = None,
    measured: bool = False,
) -> RecordDict:
    """What a client says of itself; see :class:`Member`."""
    about = ConfigRecord({"client": client, "capacity": capacity, "examples": examples, "untrained": untrained})
    about["measured"] = measured
    content = RecordDict({ABOUT: about})
    if device is not None:
        limits = {name: getattr(device, name) for name in _LIMITS}
        content[DEVICE] = ConfigRecord({name: limit for name, limit in limits.items() if limit is not None})
    return content


def member_in(message: Message, node: int) -> Member:
    """What the client of a node says of itself.

    Raises:
        WireError: Not a declaration, or values that cannot be.
    """
    if message.has_error():
        raise WireError(failure_of(message.error))
    about = message.content.get(ABOUT)
    if not isinstance(about, ConfigRecord):
        raise WireError("it did not declare itself")
    if isinstance(about.get("refused"), str):
        raise WireError(one_line(str(about["refused"])))
    client, capacity, examples = (about.get(key) for key in ("client", "capacity", "examples"))
    if not isinstance(client, int) or not 0 <= client < 2**63:
        raise WireError(f"its client id must be a number from 0, got {client!r}")
    if not isinstance(capacity, float) or not math.isfinite(capacity) or not 0 < capacity <= 1:
        raise WireError(f"its capacity must be in (0, 1], got {capacity!r}")
    if not isinstance(examples, int) or examples < 1:
        raise WireError(f"its number of examples must be at least 1, got {examples!r}")
    measured, untrained = about.get("measured") is True, str(about.get("untrained", ""))
    return Member(client, capacity, examples, node, untrained, _device_in(message, client), measured)


def _device_in(message: Message, client: int) -> Device | None:
    """The limits that a client declares beside itself.

    Raises:
        WireError: They cannot be.
    """
    record = message.content.get(DEVICE)
    if not isinstance(record, ConfigRecord):
        return None
    limits = {name: record[name] for name in _LIMITS if name in record}
    try:
        device: Device = checked(Device, {"name": f"client {client}", "share": 1.0, **limits}, "its limits")
    except ValueError as error:
        raise WireError(one_line(str(error))) from None
    return device


def question(t: int, counted: int, capacity: float, score: bytes | None = None) -> RecordDict:
    """Ask a client for its mask of round t.

    Args:
        t: Round counter.
        counted: Round of its last upload that counted, or -1.
        capacity: As the server has noted it.
        score: Payload of a shared score that it blends with its own.
    """
    content = RecordDict() if score is None else payload_record(score)
    content[QUESTION] = ConfigRecord({"round": t, "counted": counted, "capacity": capacity})
    return content


def question_in(message: Message) -> tuple[int, int, float]:
    """Inverse of :func:`question`.

    Raises:
        WireError: It is none.
    """
    asked = message.content.get(QUESTION)
    t, counted, capacity = (
        asked.get(key) if isinstance(asked, ConfigRecord) else None for key in ("round", "counted", "capacity")
    )
    if not isinstance(t, int) or not isinstance(counted, int) or not isinstance(capacity, float):
        raise WireError("a question for a mask must have a round, the last one counted and a capacity")
    if not -1 <= counted < t or not 0 < capacity <= 1:
        raise WireError(f"a question for a mask of round {t} cannot have counted {counted} and capacity {capacity:g}")
    return t, counted, capacity
