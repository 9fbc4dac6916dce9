"""Resident memory of this process."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedfibos.backend.resident import peak_resident

LINUX = Path("/proc/self/status").exists()


@pytest.mark.skipif(not LINUX, reason="Linux's own account of a process")
def test_a_process_that_takes_100_mib_more_has_had_100_mib_more():
    """In a process of its own, without torch: this one's peak may lie far above what it holds now."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(peak_resident.__code__.co_filename).parent)!r}); import resident; "
        "before = resident.peak_resident(); block = b'x' * (100 * 2**20); del block; "
        "print(before, resident.peak_resident())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 99 * 2**20 <= after - before < 110 * 2**20


def test_the_peak_never_falls():
    first = peak_resident()
    assert first > 0
    assert peak_resident() >= first
