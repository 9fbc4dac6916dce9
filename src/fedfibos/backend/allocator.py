"""Memory that is freed stays with the process, so that training need not ask for it again at every step.

By default glibc gives every large block back to the operating system as soon as it is freed; a training step frees
and asks for the same blocks again, and each time the kernel clears their pages. Keeping them makes steps of large
models on a CPU faster (docs/explanation/performance.md). The price: the process holds its peak memory to its end.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4  # of malloc.h
_BLOCK = 128 * 2**10
_STEP = 64 * 2**20


def keep_freed_memory() -> bool:
    """Set glibc's allocator of this process, and of processes forked from it, to keep what is freed.

    The command line and the worker processes of a simulation call it. A program that trains in its own process decides
    for itself. Settings made by the user (``MALLOC_...`` or ``GLIBC_TUNABLES``) are left alone.

    Returns:
        Whether it was done; False with another C library, and where the user has settings of their own.
    """
    return _set(((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, _STEP)))


def _set(asked: Sequence[tuple[int, int]]) -> bool:
    """Set options of glibc's ``mallopt``, unless the user has."""
    if not sys.platform.startswith("linux") or _set_by_user():
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "gnu_get_libc_version"):
        return False
    return all(library.mallopt(option, value) == 1 for option, value in asked)


def give_back_freed_memory(ended_threads: int = 0) -> bool:
    """Set glibc's allocator of this process to give large blocks back to the system as soon as they are freed.

    glibc raises its own bound for that while a program runs. What is free already goes back at every call. A device
    that has little memory calls this: the process takes about a fifth less, and its steps a little longer.

    Args:
        ended_threads: As many threads ran at once and have ended. What they freed goes back too.

    Returns: as of :func:`keep_freed_memory`.
    """
    done = _set(((_MMAP_THRESHOLD, _BLOCK), (_TRIM_THRESHOLD, _BLOCK)))
    if done:
        library = ctypes.CDLL(None)
        if ended_threads:
            _trim_arenas(library, ended_threads)
        library.malloc_trim(0)
    return done


def _trim_arenas(library: ctypes.CDLL, count: int) -> None:
    """Give back the free ends of the arenas of threads that have ended.

    ``malloc_trim`` leaves the end of an arena alone. glibc gives it back when a block of that arena is freed, and a new
    thread takes over the arena of one that has ended. All threads are there at once, so each takes another arena.
    """
    library.malloc.restype, library.free.argtypes, library.free.restype = ctypes.c_void_p, [ctypes.c_void_p], None
    together = threading.Barrier(count, timeout=1.0)

    def free_a_block() -> None:
        with suppress(threading.BrokenBarrierError):
            together.wait()
            library.free(library.malloc(_BLOCK - 2**12))  # large enough to be joined to the free end
            together.wait()

    threads = [threading.Thread(target=free_a_block) for _ in range(count)]
    with suppress(RuntimeError):  # the system lets this process have no more threads
        for thread in threads:
            thread.start()
    for thread in threads:
        if thread.ident is not None:
            thread.join()


def _set_by_user() -> bool:
    own = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
    return any(name in os.environ for name in own) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
