"""Memory of this process as the operating system counts it."""

from __future__ import annotations

import sys


def peak_resident() -> int:
    """Bytes that were resident at most, up to now; 0 where the system does not say.

    Linux's own account of this process. ``getrusage``, which others have, begins with that of the process that started
    this one.
    """
    try:
        with open("/proc/self/status", "rb", buffering=0) as status:  # read for every client of a simulation
            return int(status.read().partition(b"VmHWM:")[2].split(maxsplit=1)[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
