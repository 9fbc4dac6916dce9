"""Memory of this process as the operating system counts it."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_resident() -> int:
    """Bytes that were resident at most, up to now; 0 where the system does not say.

    Linux's own account of this process. ``getrusage``, which others have, begins with that of the process that started
    this one.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
