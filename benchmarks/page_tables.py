"""Tables within pages that are otherwise written by hand, from results/bench: ``python benchmarks/page_tables.py``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from performance_tables import ROOT, load, table

DOCS = ROOT / "docs"


def cluster_pieces() -> str:
    """What was measured on one machine."""
    of = _record("ray")["pieces"]
    return table(
        ["quantity", "value"],
        [
            ["a step of a client", f"{of['step']:.2f} s"],
            ["merging an upload, on the head", f"{1000 * of['merge']:.0f} ms"],
            ["an upload with its Fisher estimate", f"{of['upload_bytes'] / 1e6:.0f} MB"],
            ["the parameters", f"{of['params_bytes'] / 1e6:.0f} MB"],
        ],
    )


def larger_clusters() -> str:
    """What is computed from it."""
    rows = []
    for row in _record("ray")["larger"]:
        seconds = [row["seconds"][name] for name in ("training", "uploads in", "merging")]
        share = f"{100 * row['training_share']:.0f} %"
        cells = [f"{number:.0f}" for number in (*seconds, row["head"])]
        rows.append([str(row["nodes"]), f"{row['clients']:,}", row["link"], *cells, share])
    titles = ["nodes", "clients a round", "link", "training, s", "uploads in, s", "merging, s", "head in all, s"]
    return table([*titles, "training's share"], rows, ("link",))


def device_memory() -> str:
    """The figure of a client's process, and what it took."""
    rows = []
    for run in _record("device_memory")["runs"]:
        name = run["method"] if run["outline"] else f"{run['method']}, whole model built"
        said = "–" if run["said_mib"] is None else f"{run['said_mib']:.0f}"
        took = [f"{run[key]:.0f}" for key in ("peak_mib", "peak_above_imports_mib")]
        rows.append([name, f"{run['capacity']:g}", said, *took])
    return table(["method", "capacity", "figure", "process", "above its imports"], rows)


PAGES = {
    DOCS / "how-to" / "cluster.md": {"quantity | value": cluster_pieces, "nodes | clients": larger_clusters},
    DOCS / "explanation" / "devices.md": {"method | capacity | figure": device_memory},
}
"""Page -> how a table's first line begins, and what makes it."""


def page(path: Path) -> str:
    """A page with its tables as the records have them."""
    text = path.read_text(encoding="utf-8")
    for title, made in PAGES[path].items():
        text, found = re.subn(rf"(?m)^\| {re.escape(title)}.*\n(\|.*\n)+", lambda _, made=made: made() + "\n", text)
        if found != 1:
            raise ValueError(f"{path} must have one table that begins with '| {title}', got {found}")
    return text


def _record(name: str) -> dict[str, Any]:
    content = load(name)
    assert content is not None, name
    return content


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(page(each), encoding="utf-8")
