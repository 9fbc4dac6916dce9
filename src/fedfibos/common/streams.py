"""Random streams: one for every purpose, so that no draw moves another."""

from __future__ import annotations

import hashlib

import torch


def stream(seed: int, *purpose: object) -> torch.Generator:
    """An independent random stream for (seed, purpose, round, client, ...).

    Streams are derived by hashing, so adding a client, a worker or an evaluation moves no other stream.
    """
    words = "/".join(str(part) for part in (seed, *purpose)).encode()
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(words).digest()[:8], "little") >> 1)
