"""Where a run was made: versions, hardware, commit and command, and nothing that names a machine or a person."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch


def describe(device: str, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The content of ``environment.json``.

    Args:
        device: ``cpu`` or ``cuda``: where clients train.
        arguments: The command line; default: this process's. Of absolute paths in it only the last part is kept, of
            tokens, passwords, secrets and keys nothing.
    """
    return {
        "fedfibos": version("fedfibos"),
        "commit": commit_loaded(),
        "command": [without_folders(text) for text in without_secrets(sys.argv if arguments is None else arguments)],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
    }


def usable_cores() -> int:
    """Processors that this process may use, where the operating system says; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SECRET = re.compile(r"-.*(token|password|secret|credential|key)", re.IGNORECASE)


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """A command line with ``...`` in place of what follows a token's, password's, secret's or key's option."""
    shown: list[str] = []
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if shown and SECRET.fullmatch(shown[-1]):
            shown.append("...")
        elif equals and SECRET.fullmatch(name):
            shown.append(f"{name}=...")
        else:
            shown.append(argument)
    return shown


def without_folders(argument: str) -> str:
    """An argument without the folders of an absolute path in it (``--out=/home/x/run`` -> ``--out=run``)."""
    key, equals, value = argument.rpartition("=")
    return f"{key}{equals}{Path(value).name}" if Path(value).is_absolute() else argument


def cpu_model() -> str:
    """The processor's name as the operating system gives it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@functools.cache
def commit_loaded() -> str | None:
    """The commit of this process's first record: a checkout may move on under a long sweep, code in memory does not."""
    return commit()


def commit() -> str | None:
    """The commit of the checkout that this package runs from, ``-dirty`` with local changes; None elsewhere.

    What lies in ``results`` does not count: runs write it.
    """
    here = Path(__file__)
    if _git(here, "ls-files", "--error-unmatch", here.name) is None:  # a checkout, but not this package's
        return None
    changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results")
    return f"{_git(here, 'rev-parse', 'HEAD')}{'-dirty' if changed else ''}"


def _git(file: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=file.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
