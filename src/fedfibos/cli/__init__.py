"""The command line: ``fedfibos run``, ``sweep``, ``report``, ``audit``, ``diagnose``, ``settings`` and the others."""

from fedfibos.cli.app import main

__all__ = ["main"]
