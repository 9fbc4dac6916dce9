"""Bytes that are alive at once."""

import torch

from fedfibos.backend.memory import Lifetimes, lifetimes, peak_memory


def test_what_is_let_go_of_does_not_count():
    """Each result of 1,000 float32 lives while the next is made: two at once."""
    assert peak_memory(lambda: torch.ones(1000).mul(2).add(1)) == 2 * 4000


def test_what_is_kept_counts():
    assert peak_memory(lambda: [torch.ones(10) for _ in range(3)]) == 3 * 40


def test_views_share_their_memory():
    assert peak_memory(lambda: torch.ones(10, 10).view(100).unsqueeze(0)) == 400


def test_when_memory_comes_and_goes():
    assert lifetimes(lambda: torch.ones(10).mul(2).add(1)) == Lifetimes((40, 40, 40), (0, 1, ~0, 2, ~1, ~2))
