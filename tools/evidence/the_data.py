"""Which examples the studies were run on, where these are not the published ones."""

from __future__ import annotations

import json
from pathlib import Path

from evidence.tables import table
from evidence.words import claim


def the_data(counted: Path) -> list[str]:
    """The section, from the output of ``fedfibos data --count``."""
    found = json.loads(counted.read_text())
    rows = [["data", "part", "examples here", "published"]]
    for name, parts in found.items():
        rows += [[name, part, f"{of['examples']:,}", f"{of['published']:,}"] for part, of in parts.items()]
    short = {
        (name, part) for name, parts in found.items() for part, of in parts.items() if of["examples"] < of["published"]
    }
    return [
        "## The data",
        claim(
            short == {("ag_news", "train")},
            "The training set of AG News is not complete, because it was put together from partial copies. All other "
            "sets are complete. The images are not the published ones. They were compressed as JPEG of quality 95, "
            "without chroma subsampling, and differ from the published pixels by about 40 dB. `fedfibos data --count` "
            "counts the examples (`results/data.json`).",
        ),
        table(rows),
    ]
