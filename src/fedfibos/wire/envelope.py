"""The envelope of every payload: what kind it is of, of which model, client and round, and its checksum."""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum

from fedfibos.params import Layout
from fedfibos.wire.payload import Reader, WireError

MAGIC, VERSION = b"FFib", 2
TOKEN_SIZE = 16
HEADER = struct.Struct("<4sBB8sqI")  # magic, version, kind, layout digest, client, round
FIELDS = 94
"""Bytes that a payload's fields of fixed size take at most."""


class Kind(IntEnum):
    """What a payload is."""

    DOWNLOAD, UPLOAD, MASK, SCORE = 1, 2, 3, 4


def token_of(payload: bytes) -> bytes:
    """What names a payload: its checksum."""
    return bytes(payload[-TOKEN_SIZE:])


def header(kind: Kind, client: int, t: int, layout: Layout) -> bytes:
    """The first bytes of a payload."""
    return HEADER.pack(MAGIC, VERSION, kind, layout.digest, client, t)


def seal(parts: list[bytes]) -> bytes:
    """The payload of those parts, with its checksum at the end."""
    body = b"".join(parts)
    return body + hashlib.blake2b(body, digest_size=TOKEN_SIZE).digest()


def open_payload(
    payload: bytes, kind: Kind, layout: Layout, most: int, client: int | None = None, t: int | None = None
) -> tuple[Reader, int, int]:
    """Check size, checksum and header; a reader behind the header, the client and the round."""
    most += HEADER.size + FIELDS + TOKEN_SIZE
    if len(payload) > most:
        raise WireError(f"the payload must be at most {most} bytes, got {len(payload)}")
    if len(payload) < HEADER.size + TOKEN_SIZE:
        raise WireError(f"the payload must be at least {HEADER.size + TOKEN_SIZE} bytes, got {len(payload)}")
    body = memoryview(payload)[:-TOKEN_SIZE]
    magic, version, got_kind, digest, got_client, got_t = HEADER.unpack(body[: HEADER.size])
    if magic != MAGIC or version != VERSION:
        raise WireError(f"the payload must begin with {MAGIC!r} version {VERSION}, got {magic!r} version {version}")
    if hashlib.blake2b(body, digest_size=TOKEN_SIZE).digest() != token_of(payload):
        raise WireError("the payload is damaged: its checksum is another")
    if got_kind != kind:
        raise WireError(f"the payload must be of kind {kind} ({kind.name.lower()}), got {got_kind}")
    if digest != layout.digest:
        raise WireError("server and client have different models: names or shapes of their parameters differ")
    if client is not None and got_client != client:
        raise WireError(f"the payload must be of client {client}, got client {got_client}")
    if t is not None and got_t != t:
        raise WireError(f"the payload must be of round {t}, got round {got_t}")
    reader = Reader(body)
    reader.take(HEADER.size)
    return reader, got_client, got_t
