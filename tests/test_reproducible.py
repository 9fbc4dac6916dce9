"""The arithmetic of a run is the same on every machine, and the process's own settings come back after it."""

from __future__ import annotations

import torch

from fedfibos.reproducible import reproducible


def settings():
    return torch.get_num_threads(), torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32


def test_one_thread_and_deterministic_kernels_for_a_while():
    before = settings()
    torch.set_num_threads(2)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = False, True
    try:
        with reproducible():
            assert settings() == (1, True, False)
            with reproducible():
                pass
            assert settings() == (1, True, False)
        assert settings() == (2, False, True)
    finally:
        torch.set_num_threads(before[0])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = before[1:]
