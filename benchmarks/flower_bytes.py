"""The table of bytes in docs/reference/bytes.md, from what `make test-flower` recorded.

Run: python benchmarks/flower_bytes.py results/flower/bytes.json docs/reference/bytes.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- bytes:begin -->", "<!-- bytes:end -->"


def table(record: dict[str, Any]) -> str:
    """Bytes of a round, by method and capacity: payloads, and what crossed the connection."""
    full = next(iter(record["methods"].values()))["full_model"]
    lines = [
        f"Bytes a client a round; the template's network ({full:,} bytes in float32), three SuperNodes on the",
        f"loopback, Flower {record['flwr']}. *Wire* is counted on the SuperNode's socket, both ways together, with the",
        "app, queries, polling and HTTP; recorded by `make test-flower` in `results/flower/bytes.json`.",
        "",
        "| method | capacity | down | of full | up | of full | wire |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, run in record["methods"].items():
        for client in run["clients"]:
            down, up = (client[f"payload_{way}"] / run["rounds"] for way in ("down", "up"))
            wire = (client["connection_down"] + client["connection_up"]) / run["rounds"]
            lines.append(
                f"| {method} | {client['capacity']:g} | {down:,.0f} | {down / full:.1%} "
                f"| {up:,.0f} | {up / full:.1%} | {wire:,.0f} |"
            )
    return "\n".join(lines)


def main(record: Path, page: Path) -> None:
    """Put the table between the page's markers."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(json.loads(record.read_text()))}\n{END}{after}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
