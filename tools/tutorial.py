"""Write examples/tutorial.ipynb from docs/tutorial.md: ``python tools/tutorial.py`` (``--check``: only compare).

Text becomes text. A block of Python or shell becomes a cell to run, and a block under ``<!-- file: NAME -->`` a cell
that writes that file. What the page shows as output stays out: the notebook makes its own.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE, NOTEBOOK = ROOT / "docs" / "tutorial.md", ROOT / "examples" / "tutorial.ipynb"
BLOCK = re.compile(r"(?:<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> str:
    """The notebook as JSON."""
    cells, at = [], 0
    for block in BLOCK.finditer(page):
        cells += _text(page[at : block.start()])
        cells += _block(block[1], block[2], block[3])
        at = block.end()
    cells += _text(page[at:])
    whole = {
        "cells": [{"id": f"cell-{n}", **cell} for n, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _text(text: str) -> list[dict[str, Any]]:
    """A cell of text, with links as seen from the notebook's folder; none for nothing."""
    if not text.strip():
        return []
    linked = re.sub(r"\]\((?!https?:|\.\./)", "](../docs/", text.strip())
    linked = linked.replace("](../examples/", "](")
    return [{"cell_type": "markdown", "metadata": {}, "source": linked.splitlines(keepends=True)}]


def _block(file: str | None, language: str, body: str) -> list[dict[str, Any]]:
    """The cell of a block; what is shown as output has none."""
    if file is not None:
        source = f"%%writefile {file}\n{body}"
    elif language == "sh":
        source = "".join(f"!{line}\n" for line in body.splitlines())
    elif language == "python":
        source = body
    else:
        return []
    lines = source.rstrip("\n").splitlines(keepends=True)
    return [{"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines}]


def main() -> int:
    """Write or check."""
    wanted = notebook(PAGE.read_text(encoding="utf-8"))
    if "--check" in sys.argv[1:]:
        current = NOTEBOOK.read_text(encoding="utf-8") == wanted
        if not current:
            print(f"{NOTEBOOK.name} is not current; run: python tools/tutorial.py", file=sys.stderr)
        return int(not current)
    NOTEBOOK.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
