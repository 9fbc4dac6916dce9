"""The file in which both soaks write down what happened, where that is asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from fedfibos.runs.environment import commit


def write_soak(name: str, about: dict[str, Any]) -> None:
    """Put one soak's part into ``soak.json`` of the folder that the environment variable FEDFIBOS_RECORD names."""
    if not (folder := os.environ.get("FEDFIBOS_RECORD")):
        return
    path = Path(folder) / "soak.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = json.loads(path.read_text()) if path.exists() else {}
    record[name] = {**about, "torch": torch.__version__, "commit": commit()}
    path.write_text(json.dumps(record, indent=1) + "\n")
