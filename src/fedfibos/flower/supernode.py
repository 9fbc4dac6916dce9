"""A SuperNode that says in one line why it could not join."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

KEPT = 200
"""Last lines of a SuperNode that are looked at."""

_REASONS = (
    ("[code: 2004]", "its key is not registered: on the server, flwr supernode register KEY.pub"),
    ("CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch", "the server's certificate is of another name or address than --superlink: add it to subjectAltName"),  # noqa: E501
    ("CERTIFICATE_VERIFY_FAILED] certificate verify failed: IP address mismatch", "the server's certificate is of another name or address than --superlink: add it to subjectAltName"),  # noqa: E501
    ("CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired", "the server's certificate has expired: sign a new one"),  # noqa: E501
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is not of this authority: --root-certificates must be the ca.crt of the server's"),  # noqa: E501
    ("WRONG_VERSION_NUMBER", "the server speaks no TLS at this address: is --superlink the gateway's port?"),
    ("/v1/fleet/register-node", "it has no key, and the gateway lets in none without: --auth-supernode-private-key"),
)  # fmt: skip


def why_it_ended(lines: Iterable[str]) -> str | None:
    """Why a SuperNode could not join, from what it wrote, in one line; None where it did not say."""
    text = "\n".join(lines)
    return next((reason for sign, reason in _REASONS if sign in text), None)


def run_supernode(options: Sequence[str], write: Callable[[str], object] = sys.stdout.write) -> tuple[int, str | None]:
    """Run Flower's SuperNode, hand on what it writes, and find out why it ended.

    Args:
        options: Of ``flower-supernode``.
        write: Takes what it writes.

    Returns:
        Its exit code, and why it could not join, in one line; None where it did not say.

    Raises:
        FileNotFoundError: Flower is not installed.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # it starts others of its commands
    program = shutil.which("flower-supernode", path=path)
    if program is None:
        raise FileNotFoundError("flower-supernode was not found: pip install 'fedfibos[flower]'")
    last: deque[str] = deque(maxlen=KEPT)
    # A session of its own: what Flower starts beside the SuperNode outlives it, and would hold its output open.
    with subprocess.Popen(
        [program, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PATH": path},
        start_new_session=True,
    ) as node:
        reader = threading.Thread(target=_hand_on, args=(node, last, write), daemon=True)
        reader.start()
        before = signal.signal(signal.SIGTERM, lambda number, frame: _tell(node, signal.SIGTERM))
        try:
            code = _wait(node)
            reader.join(timeout=1.0)
        finally:
            signal.signal(signal.SIGTERM, before)
            _tell(node, signal.SIGKILL)
        reader.join()
    return code, why_it_ended(last)


def _wait(node: subprocess.Popen[str]) -> int:
    while True:
        try:
            return node.wait()
        except KeyboardInterrupt:  # it says goodbye, and tells the SuperLink
            _tell(node, signal.SIGINT)


def _hand_on(node: subprocess.Popen[str], last: deque[str], write: Callable[[str], object]) -> None:
    assert node.stdout is not None
    for line in node.stdout:
        last.append(line.rstrip("\n"))
        write(line)


def _tell(node: subprocess.Popen[str], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(node.pid, number)
