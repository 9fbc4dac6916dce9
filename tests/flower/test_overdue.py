"""Work that hangs is ended: by an exception where Python can, from outside where it cannot."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from fedfibos.flower.overdue import OverdueError, within


def sleeps():
    time.sleep(60)


def catches_exceptions():
    try:
        sleeps()
    except Exception:
        time.sleep(60)


def catches_everything():
    try:
        sleeps()
    except BaseException:
        time.sleep(60)


def test_a_sleep_ends_after_the_seconds_and_says_where_it_was():
    line = sleeps.__code__.co_firstlineno + 1
    started = time.monotonic()
    with pytest.raises(OverdueError) as raised, within(0.2):
        sleeps()
    assert str(raised.value) == f"it was not done within 0.2 s: stopped in sleeps, test_overdue.py line {line}"
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("work", [catches_exceptions, catches_everything])
def test_what_catches_is_ended_all_the_same(work):
    """``except Exception`` does not catch it; what catches everything is ended the next time."""
    with pytest.raises(OverdueError), within(0.2):
        work()


def test_what_is_done_in_time_is_left_alone_and_so_is_an_alarm_of_another():
    def theirs(number, frame):
        raise AssertionError("it rang")

    before = signal.signal(signal.SIGALRM, theirs)
    try:
        with within(0.3):
            pass
        assert signal.getsignal(signal.SIGALRM) is theirs
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        time.sleep(0.4)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "hang",
    [
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}); time.sleep(60)",
        "thread = threading.Thread(target=work); thread.start(); thread.join()",
    ],
)
def test_what_no_exception_reaches_ends_with_its_process(hang):
    """Signals blocked as by a library that never returns to Python; and a thread that is not the main one."""
    script = f"""
        import signal, threading, time
        import fedfibos.flower.overdue as overdue

        overdue.GRACE = 0.3

        def work():
            with overdue.within(0.2):
                time.sleep(60)

        if "Thread" in {hang!r}:
            {hang if "Thread" in hang else "pass"}
        with overdue.within(0.2):
            {hang if "Thread" not in hang else "pass"}
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
