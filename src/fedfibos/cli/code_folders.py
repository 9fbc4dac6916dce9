"""Where Python looks for a user's own model, data set or method."""

from __future__ import annotations

import sys
from pathlib import Path


def search_here() -> None:
    """Look for a user's own code in the current folder; last, so that no file in it stands in for a library."""
    _search(Path.cwd(), len(sys.path))


def search_beside(experiment: Path) -> None:
    """Look for it beside an experiment's file, or among the copies that a run directory keeps, and then here."""
    from fedfibos.runs.files import CODE

    here = str(Path.cwd())
    before = sys.path.index(here) if here in sys.path else len(sys.path)
    _search(experiment / CODE if experiment.is_dir() else experiment.parent, before)


def _search(folder: Path, position: int) -> None:
    if (name := str(folder.absolute())) not in sys.path:
        sys.path.insert(position, name)
