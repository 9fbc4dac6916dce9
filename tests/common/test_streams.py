"""A random stream for every purpose."""

import hashlib

import torch

from fedfibos.common.streams import stream


def test_a_stream_is_that_of_the_hash_of_its_words():
    """So it is the same in every version: 63 bits of the SHA-256 of ``7/batches/3/11``."""
    seed = int.from_bytes(hashlib.sha256(b"7/batches/3/11").digest()[:8], "little") >> 1
    assert stream(7, "batches", 3, 11).initial_seed() == seed


def test_streams_differ_in_every_word_and_leave_the_global_one_alone():
    before = torch.get_rng_state()
    drawn = {float(torch.rand((), generator=stream(*words))) for words in [(0, "a"), (1, "a"), (0, "b"), (0, "a", 0)]}
    assert len(drawn) == 4
    assert torch.equal(before, torch.get_rng_state())
