"""Keeping freed memory: measured from the operating system's accounting, and left alone where the user decides."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from fedfibos.backend.allocator import keep_freed_memory
done = keep_freed_memory()
for _ in range(10):
    torch.ones(8_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(8_000_000)
print(done, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> tuple[str, int]:
    """Whether it was done, and the pages that ten allocations of 32 MB had cleared."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    said, count = done.stdout.split()
    return said, int(count)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_freed_memory_is_used_again():
    done, count = faults()
    assert done == "True"
    assert count < 1000


@pytest.mark.slow
def test_the_users_settings_are_left_alone():
    assert faults(MALLOC_TOP_PAD_="1000000")[0] == "False"
    assert faults(GLIBC_TUNABLES="glibc.malloc.arena_max=2")[0] == "False"
