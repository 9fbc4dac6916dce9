"""The arithmetic of a run is the same on every machine, and the process's own settings come back after it."""

from __future__ import annotations

import pytest
import torch

from fedfibos.backend.determinism import _precisions, _set_precisions, reproducible


def settings():
    cudnn = torch.backends.cudnn
    return torch.get_num_threads(), cudnn.deterministic, cudnn.benchmark, _precisions()[1]


@pytest.fixture
def restored():
    before, precisions = settings(), _precisions()
    yield
    torch.set_num_threads(before[0])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[1:3]
    _set_precisions(precisions)


@pytest.mark.parametrize("precision", ["tf32", "ieee", "none"])
def test_one_thread_and_deterministic_exact_kernels_for_a_while(restored, precision):
    torch.set_num_threads(2)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = False, True
    torch.backends.cudnn.conv.fp32_precision = precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    before = settings()
    with reproducible():
        assert settings() == (1, True, False, dict.fromkeys(("conv", "rnn", "matmul"), "ieee"))
        with reproducible():
            pass
        assert settings()[:3] == (1, True, False)
        assert set(settings()[3].values()) == {"ieee"}
        assert torch.backends.cudnn.allow_tf32 is False  # which torch's exporter reads, in the older interface
        assert torch.backends.cuda.matmul.allow_tf32 is False
    assert settings() == before
