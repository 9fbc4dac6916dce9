"""What a process of a cluster takes over from the head: where code lies, the current folder, versions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from fedfibos.backend.allocator import keep_freed_memory
from fedfibos.simulation.failures import WorkerError


@dataclass(frozen=True)
class Home:
    """The head's process, for processes elsewhere.

    Attributes:
        folder: Its current folder.
        path: Where it looks for code.
        arguments: Its command line, which is what records name.
        versions: Of what the bytes of a result depend on.
    """

    folder: str
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    versions: Mapping[str, str]

    @classmethod
    def here(cls) -> Home:
        """This process's."""
        path = tuple(str(Path(folder).absolute()) for folder in sys.path)
        return cls(os.getcwd(), path, tuple(sys.argv), _versions())

    def settle(self) -> None:
        """Make this process like it: same folder, code found in the same places, one torch thread.

        Raises:
            WorkerError: It has other versions; names the machine.
        """
        here = _versions()
        for package, wanted in self.versions.items():
            if here[package] != wanted:
                raise WorkerError(f"{os.uname().nodename} has {package} {here[package]}, the head {wanted}")
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        sys.path += [folder for folder in self.path if folder not in sys.path]
        sys.argv = list(self.arguments)
        torch.set_num_threads(1)
        keep_freed_memory()


def _versions() -> dict[str, str]:
    return {package: version(package) for package in ("fedfibos", "torch", "numpy")}
