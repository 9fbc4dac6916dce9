"""The tables of docs/how-to/cluster.md, from ``results/bench/ray.json``: ``python benchmarks/cluster_tables.py``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from performance_tables import table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "how-to" / "cluster.md"
RECORD = ROOT / "results" / "bench" / "ray.json"


def page(record: dict[str, Any], old: str) -> str:
    """The page with its two tables as the record has them; both begin with a title of their own."""
    for title, text in (("quantity", pieces(record)), ("nodes", larger(record))):
        old = re.sub(rf"(?m)^\| {title} \|.*\n(\|.*\n)+", lambda _, text=text: text + "\n", old)
    return old


def pieces(record: dict[str, Any]) -> str:
    """What was measured."""
    of = record["pieces"]
    return table(
        ["quantity", "value"],
        [
            ["a step of a client", f"{of['step']:.2f} s"],
            ["merging an upload, on the head", f"{1000 * of['merge']:.0f} ms"],
            ["an upload with its Fisher estimate", f"{of['upload_bytes'] / 1e6:.0f} MB"],
            ["the parameters", f"{of['params_bytes'] / 1e6:.0f} MB"],
        ],
    )


def larger(record: dict[str, Any]) -> str:
    """What is computed from it."""
    rows = []
    for row in record["larger"]:
        seconds = [row["seconds"][name] for name in ("training", "uploads in", "merging")]
        share = f"{100 * row['training_share']:.0f} %"
        cells = [f"{number:.0f}" for number in (*seconds, row["head"])]
        rows.append([str(row["nodes"]), f"{row['clients']:,}", row["link"], *cells, share])
    titles = ["nodes", "clients a round", "link", "training, s", "uploads in, s", "merging, s", "head in all, s"]
    return table([*titles, "training's share"], rows, ("link",))


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RECORD.read_text()), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
