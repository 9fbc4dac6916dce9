"""Flower's processes on this machine: started, watched, and stopped again, all of them, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from fedfibos.flower.supernode import why_it_ended

HOST = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


class LaunchError(RuntimeError):
    """A process that did not come up, or ended too early; the message is one line and names its log."""


@dataclass
class Processes:
    """Processes of one deployment, with a private Flower home, logs, and an empty folder to run in.

    Use as a context manager: on leaving, every process group that was started is ended, children included.

    Attributes:
        folder: Where all of it lives.
    """

    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _handlers: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> Processes:
        for name in ("home", "logs", "empty"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if threading.current_thread() is threading.main_thread():
            self._handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, _leave)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():  # a second Ctrl-C must not leave anything behind
            self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        children = {child for process in self.running.values() for child in _descendants(process.pid)}
        for process in self.running.values():
            _signal(process.pid, signal.SIGTERM)
        for name in reversed(list(self.running)):
            self.stop(name)
        for child in children:
            _kill(child)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def environment(self) -> dict[str, str]:
        """Quiet, private, and with this interpreter's commands first."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **QUIET, "FLWR_HOME": str(self.folder / "home"), "PATH": path}

    def start(self, name: str, *command: str) -> None:
        """Start a command in a process group of its own; its output goes to ``logs/NAME.log``."""
        program = shutil.which(command[0], path=self.environment["PATH"])
        if program is None:
            raise LaunchError(f"{command[0]} was not found: pip install 'fedfibos[flower]'")
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [program, *command[1:]],
                cwd=self.folder / "empty",
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def call(self, *command: str) -> str:
        """Run a command to its end and return its output.

        Raises:
            LaunchError: It failed.
        """
        program = shutil.which(command[0], path=self.environment["PATH"]) or command[0]
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder / "empty",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise LaunchError(f"{' '.join(command[:3])} failed: {_last_line(done.stdout + done.stderr)}")
        return done.stdout

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self.folder / "logs" / f"{name}.log"

    def check(self, *names: str) -> None:
        """Raise LaunchError if one of those processes has ended."""
        for name in names:
            if (code := self.running[name].poll()) is not None:
                text = self.log(name).read_text(errors="replace")
                why = why_it_ended(text.splitlines()) or _last_line(text)
                raise LaunchError(f"{name} ended with exit code {code}: {why} (log: {self.log(name)})")

    def wait_for_port(self, name: str, port: int, seconds: float = 60.0) -> None:
        """Wait until a process accepts connections."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check(name)
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex((HOST, port)) == 0:
                    return
            time.sleep(0.2)
        raise LaunchError(f"{name} did not listen on {HOST}:{port} within {seconds:g} s (log: {self.log(name)})")

    def stop(self, name: str, *, at_once: bool = False) -> None:
        """End a process and its children: politely, then by force."""
        process = self.running.pop(name)
        children = _descendants(process.pid)  # Flower starts its apps in sessions of their own: the group is not all
        if not at_once:
            _signal(process.pid, signal.SIGTERM)
            end = time.monotonic() + 5.0
            while time.monotonic() < end and process.poll() is None:
                time.sleep(0.1)
        children |= _descendants(process.pid)
        _signal(process.pid, signal.SIGKILL)
        for child in children:
            _kill(child)
        process.wait()


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _descendants(pid: int) -> set[int]:
    """Children of a process, theirs, and so on."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listing.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _leave(number: int, frame: object) -> None:
    """``kill`` is taken as Ctrl-C is: what was started is stopped."""
    raise KeyboardInterrupt


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it wrote nothing"
