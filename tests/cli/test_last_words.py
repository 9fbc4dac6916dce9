"""The line that is left where a process is ended without an exception."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal
from fedfibos.cli.last_words import last_words
with last_words("it was killed; go on with: it's $HOME"):
    {ends}
"""


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, "fedfibos: it was killed; go on with: it's $HOME\n"),
        ("os._exit(1)", 1, "fedfibos: it was killed; go on with: it's $HOME\n"),
        ("raise SystemExit(4)", 4, ""),
        ("pass", 0, ""),
    ],
)
def test_only_a_process_that_ends_at_once_leaves_them(ends, code, said):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(ends=ends)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (code, said)
