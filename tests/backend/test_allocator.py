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


READING = """
import threading
from fedfibos.backend.allocator import give_back_freed_memory

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

bytes(20 * 2**20)  # glibc keeps more of what is freed from now on
together = threading.Barrier(2)

def read():
    together.wait()
    pieces = [b"x" * (60_000 + number) for number in range(300)]
    together.wait()

threads = [threading.Thread(target=read) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
before = resident()
print(give_back_freed_memory(ended_threads=2), before - resident())
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_what_threads_that_have_ended_freed_is_given_back():
    """34 MiB, half of it in the memory of each; glibc's own ``malloc_trim`` leaves it there."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "GLIBC_TUNABLES"}
    done = subprocess.run([sys.executable, "-c", READING], env=clean, capture_output=True, text=True, check=True)
    said, given_back = done.stdout.split()
    assert said == "True"
    assert 32 < float(given_back) < 40


@pytest.mark.slow
def test_the_users_settings_are_left_alone():
    assert faults(MALLOC_TOP_PAD_="1000000")[0] == "False"
    assert faults(GLIBC_TUNABLES="glibc.malloc.arena_max=2")[0] == "False"
